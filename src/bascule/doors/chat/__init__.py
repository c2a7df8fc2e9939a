"""The chat door: an OpenAI-compatible endpoint whose tools are executed here.

Any OpenAI client gets the tools of its token's task without knowing of them. Below:
``bascule.loop`` holds the conversation. Above: the composition roots mount ``api.chat_routes``.
"""
