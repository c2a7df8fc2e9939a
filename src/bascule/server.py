"""Server records from code: ``Server.stdio(...)``, ``Server.http(...)`` for agent developers.

Below: ``records.py`` validates. Above: the library. Configuring a server in code is the opt-in:
such a record allows every tool unless told otherwise, and says so in ``allowed_tools``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from bascule.model.keyword import refuse_text, refuse_unknown
from bascule.model.server import ServerRecord
from bascule.wire.records import decode

_FIELDS = ServerRecord.__struct_fields__
_OF_HTTP = ("allow", "headers", "auth_ref", "insecure")


class Server:
    """Builds server records. Every other field of a record is a keyword, and nothing else is."""

    @staticmethod
    def stdio(
        server_id: str,
        command: str,
        *args: str,
        allow: Iterable[str] = ("*",),
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        home: str = "kept",
        **fields: Any,
    ) -> ServerRecord:
        """Describe a server that runs as a local process.

        ``Server.stdio("time", "uvx", "mcp-server-time", allow=["get_*"])``
        ``home="temporary"`` gives it a HOME that goes when it ends.
        """
        refuse_unknown("Server.stdio", fields, ("allow", "env", "cwd", *_FIELDS))
        refuse_text("Server.stdio", allow=allow)
        stdio: dict[str, Any] = {"command": command, "args": list(args), "env": dict(env or {})}
        stdio["home"] = home
        if cwd is not None:
            stdio["cwd"] = cwd
        record: dict[str, Any] = {
            "server_id": server_id,
            "transport": "stdio",
            "stdio": stdio,
            "allowed_tools": list(allow),
            **fields,
        }
        return decode(ServerRecord, record)[0]

    @staticmethod
    def http(  # noqa: PLR0913 - options, all by keyword
        server_id: str,
        url: str,
        *,
        allow: Iterable[str] = ("*",),
        headers: Mapping[str, str] | None = None,
        auth_ref: str | None = None,
        insecure: bool = False,
        transport: str = "streamable_http",
        **fields: Any,
    ) -> ServerRecord:
        """Describe a server that is reached over HTTP.

        ``Server.http("docs", "https://mcp.example.com/mcp", auth_ref="${ENV:DOCS_TOKEN}")``
        ``transport="sse"`` is the legacy HTTP+SSE of 2024-11-05.
        """
        refuse_unknown("Server.http", fields, (*_OF_HTTP, *_FIELDS))
        refuse_text("Server.http", allow=allow)
        http: dict[str, Any] = {"url": url, "headers": dict(headers or {}), "insecure": insecure}
        if auth_ref is not None:
            http["auth_ref"] = auth_ref
        record: dict[str, Any] = {
            "server_id": server_id,
            "transport": transport,
            "http": http,
            "allowed_tools": list(allow),
            **fields,
        }
        return decode(ServerRecord, record)[0]
