"""The chat loop: a model asks for tools, the bridge calls them, until there is an answer.

``upstream.py`` is what the loop needs of a model's server. Used by the chat door, the command line
and hostcalls.
"""
