"""The bodies of Bascule's own HTTP API: the server encodes them, the client decodes them."""
