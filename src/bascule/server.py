"""Server records from code and from configurations: one way, whoever describes the server.

Configuring a server in code is the opt-in: such a record allows every tool unless told otherwise,
and says so in ``allowed_tools``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import to_builtins

from bascule.model.keyword import refuse_text, refuse_unknown
from bascule.model.sandbox import Sandbox
from bascule.model.server import ServerRecord
from bascule.wire.records import decode

_FIELDS = ServerRecord.__struct_fields__
#: What a local server in code is kept to unless told otherwise: limits, and no more.
CODE_SANDBOX = "limits"
_OF_HTTP = ("allow", "headers", "auth_ref", "insecure")


class Server:
    """Builds server records. Every other field of a record is a keyword, and nothing else is."""

    @staticmethod
    def stdio(  # noqa: PLR0913 - options, all by keyword
        server_id: str,
        command: str,
        *args: str,
        allow: Iterable[str] = ("*",),
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        home: str = "kept",
        sandbox: str | Mapping[str, Any] | Sandbox = CODE_SANDBOX,
        **fields: Any,
    ) -> ServerRecord:
        """Describe a server that runs as a local process.

        ``Server.stdio("time", "uvx", "mcp-server-time", allow=["get_*"])``
        ``home="temporary"`` gives it a HOME that goes when it ends. ``sandbox`` is what it is kept
        from: a word such as ``"no-access"``, a table of the record, or a ``Sandbox``.
        """
        refuse_unknown("Server.stdio", fields, ("allow", "env", "cwd", *_FIELDS))
        refuse_text("Server.stdio", allow=allow)
        place = {"command": command, "args": args, "env": env or {}, "cwd": cwd, "home": home}
        return server_record(server_id, "stdio", place, allow, sandbox=sandbox, **fields)[0]

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
        place = {"url": url, "headers": headers or {}, "insecure": insecure, "auth_ref": auth_ref}
        return server_record(server_id, transport, place, allow, **fields)[0]


def server_record(
    server_id: str,
    transport: str,
    place: Mapping[str, Any],
    allow: Iterable[str] = ("*",),
    **fields: Any,
) -> tuple[ServerRecord, tuple[str, ...]]:
    """Return a record and its warnings; raise InvalidRecord with every problem.

    ``place`` says how the server is started or reached; what is None there is left out. A local
    one without a ``sandbox`` has the limits of ``CODE_SANDBOX``.
    """
    if transport == "stdio":
        given: object = fields.get("sandbox", CODE_SANDBOX)
        fields["sandbox"] = to_builtins(given) if isinstance(given, Sandbox) else given
    record: dict[str, Any] = {
        "server_id": server_id,
        "transport": transport,
        "stdio" if transport == "stdio" else "http": {
            name: value for name, value in place.items() if value is not None
        },
        "allowed_tools": list(allow),
        **fields,
    }
    return decode(ServerRecord, record)


def own_words(problem: str, names: Mapping[str, str]) -> str:
    """Return a problem of a record as one of a configuration without its tables.

    ``names`` are the configuration's own names for fields of the record.
    """
    path, colon, rest = problem.partition(":")
    field, bracket, index = path.removeprefix("stdio.").removeprefix("http.").partition("[")
    return f"{names.get(field, field)}{bracket}{index}{colon}{rest}"
