"""The chat loop: a model asks for tools, the bridge calls them, until there is an answer.

``turns.py`` holds a conversation; ``upstream.py`` is what it needs of a model's server, and
``backends.py`` chooses one. Used by the chat door, the command line and hostcalls.
"""
