"""The chat loop: a model asks for tools, the bridge calls them, until there is an answer.

``turns.py`` holds a conversation, ``conversation.py`` is what is known of it. ``parking.py`` is
what it needs to stop in the middle of a turn, ``own_tools.py`` to run tools of the caller's own;
``backend.py`` is a model's server, and ``backends.py`` chooses one. Used by the chat door, the
command line and hostcalls.
"""
