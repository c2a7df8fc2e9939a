"""Bascule: the governed bridge between agents and MCP tools."""

__version__ = "0.1.0"
