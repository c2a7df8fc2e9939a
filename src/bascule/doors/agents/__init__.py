"""The agents API: the MCP servers of each agent, how they stand, and changes to them.

``api.py`` has the routes and the ASGI application; ``ports.py`` says what they need, which
``bascule.manager`` provides.
"""
