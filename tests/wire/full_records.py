"""One record of each kind with every field given, none of them its default, to walk over."""

from __future__ import annotations

import copy
import json
from typing import Any

from bascule.model.backend import BackendRecord
from bascule.model.platform import PlatformRecord
from bascule.model.profile import ProfileRecord
from bascule.model.server import ServerRecord
from bascule.model.task import TaskRecord
from bascule.model.user import UserRecord

SEED_RECORD = """\
version = 1
server_id = "fs"
display_name = "Filesystem"
transport = "stdio"
tool_namespace = "mcp.fs"
allowed_tools = ["read_*", "search_*"]

[stdio]
command = "uvx"
args = ["xxx@latest"]

[budgets]
tool_timeout_ms = 8000
max_concurrency = 8
max_tool_output_bytes = 65536
"""
RULES = [
    {"tools": ["write_*"], "when": "args.path.startsWith('/etc')", "effect": "deny"},
    {"tools": ["read_*"], "effect": "allow"},
]
COMMON: dict[str, Any] = {
    "version": 1,
    "server_id": "fs",
    "display_name": "Filesystem",
    "enabled": False,
    "tags": ["files"],
    "tool_namespace": "mcp.fs",
    "allowed_tools": ["read_*", "search_*"],
    "sharing": "session",
    "prewarm": True,
    "effects": {"read": ["read_*", "search_*"], "idempotent": ["put_*"]},
    "budgets": {
        "connect_timeout_ms": 15001,
        "start_timeout_ms": 120001,
        "list_timeout_ms": 12001,
        "tool_timeout_ms": 8001,
        "max_concurrency": 9,
        "max_tool_output_bytes": 65537,
    },
    "approval_policy": {"default": "policy", "per_tool": {"delete_*": "always"}, "rules": RULES},
    "hygiene": {"leaks": "block", "redact": {"keys": ["password"]}},
}
LOCAL: dict[str, Any] = COMMON | {
    "transport": "stdio",
    "stdio": {
        "command": "uvx",
        "args": ["mcp-server-files@1.2.3", "--root=${ROOT}"],
        "env": {"LOG": "warn", "TOKEN": "secret://files"},
        "env_from": ["API_TOKEN"],
        "cwd": "/srv/work",
        "home": "temporary",
    },
    "sandbox": {
        "level": "namespaces",
        "required": True,
        "read": ["/srv/shared"],
        "write": [".", "/srv/out"],
        "network": "egress",
        "hosts": ["api.example.org:443"],
        "memory_mb": 512,
        "processes": 16,
        "cpu_seconds": 60,
        "open_files": 128,
        "home_mb": 64,
        "build": True,
    },
}
REMOTE: dict[str, Any] = COMMON | {
    "transport": "streamable_http",
    "http": {
        "url": "https://example.org/mcp",
        "headers": {"X-Team": "${ENV:TEAM:-none}"},
        "auth": {
            "type": "oauth_client_credentials",
            "ref": "secret://gitlab",
            "token_url": "https://example.org/token",
            "client_id": "bascule",
            "scopes": ["api"],
        },
        "tls": {"ca": "/a.pem", "client_certificate": "/b.pem", "client_key": "/c.pem"},
        "insecure": True,
    },
}
SELECTION: dict[str, Any] = {
    "default_server_ids": ["gitlab", "fs"],
    "allowed_server_ids": ["gitlab", "fs", "search"],
    "server_tags": ["scm"],
    "tool_allowlist": ["*"],
    "tool_denylist": ["delete_*", "gitlab/drop_*"],
    "read_only": True,
}
TASK: dict[str, Any] = {
    "version": 1,
    "task_id": "review",
    "name": "Review",
    "description": "Reviews code.",
    "mcp": SELECTION
    | {
        "enabled": True,
        "profile": "code",
        "profile_overrides": SELECTION,
        "users": "open",
        "allowed_groups": ["writers"],
        "user_from_request": True,
        "max_iterations": 4,
        "max_total_tool_calls": 5,
        "max_tool_output_bytes": 600,
        "tool_output": "always_json",
    },
    "config": {"model": "small", "depth": [1, {"a": False}]},
    "executable": {
        "path": "review.wasm",
        "checksum_sha256": "0123456789abcdef" * 4,
        "args": ["-v"],
        "env": {"LOG": "warn"},
    },
}
PROFILE: dict[str, Any] = SELECTION | {
    "version": 1,
    "name": "code",
    "description": "Code work.",
    "environments": {"prod": SELECTION},
}
PLATFORM: dict[str, Any] = {
    "version": 1,
    "tool_denylist": ["shell_*"],
    "default_approval": "policy",
    "rules": RULES,
    "ceilings": {
        "connect_timeout_ms": 1,
        "list_timeout_ms": 2,
        "tool_timeout_ms": 3,
        "max_concurrency": 4,
        "max_tool_output_bytes": 5,
    },
    "sandbox": {
        "level": "best",
        "required": True,
        "network": "egress",
        "hosts": ["api.example.org:443"],
        "memory_mb": 512,
        "processes": 16,
        "cpu_seconds": 60,
        "open_files": 128,
        "home_mb": 64,
        "build": False,
    },
}
BACKEND: dict[str, Any] = {
    "version": 1,
    "name": "openai",
    "base_url": "https://example.org/v1",
    "enabled": False,
    "key_ref": "secret://openai",
    "headers": {"X-Org": "a"},
    "models": ["small"],
    "connect_timeout_ms": 1,
    "request_timeout_ms": 2,
    "insecure": True,
}

USER: dict[str, Any] = {
    "version": 1,
    "user_id": "alice@example.org",
    "display_name": "Alice",
    "enabled": False,
    "enabled_server_ids": ["fs"],
    "read_only": True,
    "tool_allowlist": ["read_*"],
    "tool_denylist": ["fs/write_*"],
    "groups": ["writers"],
    "own": {
        "enabled_server_ids": [],
        "read_only": True,
        "tool_allowlist": ["read_file"],
        "tool_denylist": ["delete_*"],
    },
}


def apart(plain: dict[str, Any]) -> dict[str, Any]:
    """Copy a record so that no two of its values are the same object."""
    return json.loads(json.dumps(plain))


FULL: dict[str, tuple[type[Any], dict[str, Any]]] = {
    "local": (ServerRecord, apart(LOCAL)),
    "remote": (ServerRecord, apart(REMOTE)),
    "task": (TaskRecord, apart(TASK)),
    "profile": (ProfileRecord, apart(PROFILE)),
    "platform": (PlatformRecord, apart(PLATFORM)),
    "backend": (BackendRecord, apart(BACKEND)),
    "user": (UserRecord, apart(USER)),
}


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """List the way to every value inside a value."""
    found = [path] if path else []
    if isinstance(value, dict):
        return found + [p for key in value for p in places(value[key], (*path, key))]
    if isinstance(value, list):
        return found + [p for i, item in enumerate(value) for p in places(item, (*path, i))]
    return found


def put(value: dict[str, Any], path: tuple[Any, ...], odd: Any) -> dict[str, Any]:
    """Copy a value with one place of it changed."""
    changed = copy.deepcopy(value)
    inner: Any = changed
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = odd
    return changed
