"""The echo tool behind the official SDK's own server: what most real servers cost.

Beside ``floor_server`` it shows how much of a gain is left when the server is not a floor.
"""

from __future__ import annotations

from mcp.server.mcpserver import MCPServer

server = MCPServer("sdk")


@server.tool(structured_output=False)
def echo(text: str) -> str:
    """Give back the text."""
    return text


if __name__ == "__main__":
    server.run("stdio")
