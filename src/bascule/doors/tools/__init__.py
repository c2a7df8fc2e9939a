"""The tools API: list, call and explain the tools of a client token's task over HTTP.

``api.py`` has the routes, ``progress.py`` a call that tells how far it is.
"""
