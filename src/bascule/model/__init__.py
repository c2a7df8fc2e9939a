"""The nouns: frozen records without I/O, clock or threads.

A noun knows its own shape and nothing of where it came from (``bascule.wire`` reads and writes it)
or what it permits (``bascule.policy`` decides).
"""
