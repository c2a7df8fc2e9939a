"""The bridge: the one way from a session to a tool.

``call.py`` is the path of a call, in one screen; the other modules are the parts it names.
"""
