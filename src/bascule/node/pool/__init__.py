"""The pool: one managed connection per MCP server, and what flows over it."""
