"""The chat door: an OpenAI-compatible endpoint whose tools are executed here.

Each OpenAI client gets the tools of its token's task without knowing of them.
"""
