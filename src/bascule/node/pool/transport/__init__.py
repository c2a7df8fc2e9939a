"""Transports: how the pool reaches a server, and how a stdio server is started and ended."""
