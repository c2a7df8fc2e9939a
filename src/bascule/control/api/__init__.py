"""The registry over HTTP: records, watch, history and import as thin faces of the one service."""
