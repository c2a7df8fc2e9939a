"""Encodings: bytes to and from the nouns of ``bascule.model``, without I/O."""
