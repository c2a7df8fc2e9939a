"""The bodies of the HTTP API, each one struct that the server writes and the client reads."""
