"""The gateway door: Bascule as an MCP server, over streamable HTTP."""
