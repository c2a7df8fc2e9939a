"""The gateway: Bascule as an MCP server, for every MCP client."""
