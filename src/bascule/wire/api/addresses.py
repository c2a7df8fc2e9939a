"""Where the HTTP API is found: one name for each address that both sides use."""

from __future__ import annotations

PUBLIC = "/api/v1/mcp"
ADMIN = "/admin/api/mcp"
SNAPSHOT = f"{PUBLIC}/snapshot"
WATCH = f"{PUBLIC}/watch"
RESCAN = f"{ADMIN}/rescan"
#: Every known tool, and what a session would have of them.
TOOLS = f"{ADMIN}/tools"
EFFECTIVE = f"{ADMIN}/effective"
TOKENS = "/admin/api/tokens"
LOGIN = "/admin/api/login"
LOGOUT = "/admin/api/logout"
SECRETS = "/admin/api/secrets"
AUDIT = "/admin/api/audit"
APPROVALS = "/admin/api/approvals"
OVERVIEW = "/admin/api/overview"
NODES = "/admin/api/nodes"
#: Where a node says how it and its servers are.
NODE_REPORT = "/api/v1/nodes/report"
#: How a node stands, for whoever owns its data directory, and what ends its doubt.
NODE = "/api/v1/node"
NODE_ACCEPT = f"{NODE}/accept"
NODE_LEDGER = f"{NODE}/ledger/accept"
LIVE = "/admin/api/live"
#: Where the module of a task is run.
INVOKE = "/api/v1/tasks/{id}/invoke"
IDENTITY = "/api/v1/identity"
ME = "/api/v1/me"
INTEGRATIONS = f"{ME}/integrations"
#: Where a process proves that it holds the lock of its data directory.
INSTANCE = "/api/v1/instance"
OPENAPI = "/openapi.json"
DOCS = "/docs"
#: Where MCP clients connect, and below which one server is served alone.
GATEWAY = "/mcp"
#: The admin page, below which its files are.
PAGE = "/admin/"
AGENTS = "/api/agents"
AGENT_SERVERS = f"{AGENTS}/mcp"
AGENT_RECONNECT = f"{AGENTS}/mcp/reconnect"
AGENT_ENTRIES = f"{AGENTS}/mcp/servers"
