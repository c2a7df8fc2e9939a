"""The tools API: list, call and explain the tools of a client token's task over HTTP.

``api.py`` has the routes, ``sessions.py`` the sessions behind them, ``shapes.py`` what is shown,
and ``progress.py`` a call that tells how far it is.
"""
