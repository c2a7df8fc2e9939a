"""Package registries on loopback: what they serve can be changed, as a registry might."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import tarfile
import zipfile
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, Literal
from urllib.parse import unquote

Kind = Literal["uvx", "npx"]


def wheel(name: str, version: str, source: str, needs: Mapping[str, str], tag: str) -> bytes:
    """Make a wheel whose command is the ``main`` of a source."""
    info = f"{name}-{version}.dist-info"
    requires = "".join(f"Requires-Dist: {other}{limit}\n" for other, limit in needs.items())
    meta = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{requires}"
    files = {
        f"{name}.py": source,
        f"{info}/METADATA": meta,
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {tag}\n",
        f"{info}/entry_points.txt": f"[console_scripts]\n{name} = {name}:main\n",
    }
    files[f"{info}/RECORD"] = "".join(f"{path},,\n" for path in (*files, f"{info}/RECORD"))
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for path, text in files.items():
            archive.writestr(zipfile.ZipInfo(path), text)
    return content.getvalue()


def module(name: str, version: str, word: str, needs: Mapping[str, str]) -> bytes:
    """Make a package of npm's whose command prints a word."""
    manifest = {"name": name, "version": version, "bin": "start.js", "dependencies": dict(needs)}
    files = {
        "package.json": json.dumps(manifest),
        "start.js": f"#!/usr/bin/env node\nconsole.log({word!r})\n",
    }
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as archive:
        for path, text in files.items():
            entry = tarfile.TarInfo(f"package/{path}")
            entry.size, entry.mode = len(text), 0o755
            archive.addfile(entry, io.BytesIO(text.encode()))
    return content.getvalue()


class Registry:
    """What is there to fetch: an index of Python packages, or a registry of npm's."""

    def __init__(self, kind: Kind, address: str) -> None:
        self.kind: Kind = kind
        self.address = address
        self.served: dict[str, bytes] = {}
        #: What the registry says of each file, which need not be true.
        self.stated: dict[str, bytes] = {}
        self._versions: dict[str, dict[str, str]] = {}
        self._needs: dict[str, dict[str, str]] = {}

    @property
    def variables(self) -> dict[str, str]:
        """What has a launcher ask here."""
        if self.kind == "uvx":
            return {"UV_DEFAULT_INDEX": f"{self.address}/simple/", "UV_HTTP_RETRIES": "0"}
        return {"npm_config_registry": f"{self.address}/", "npm_config_fetch_retries": "0"}

    def publish(
        self,
        name: str,
        version: str,
        word: str = "",
        *,
        needs: Mapping[str, str] | None = None,
        source: str | None = None,
        tag: str = "py3-none-any",
        honest: bool = True,
    ) -> str:
        """Serve a version that prints a word, or another in its place; return its hash.

        Without honesty, the registry goes on to say what it said before.
        """
        if self.kind == "uvx":
            file = f"{name}-{version}-{tag}.whl"
            source = source or f"def main():\n    print({word!r})\n"
            content = wheel(name, version, source, needs or {}, tag)
        else:
            file = f"{name}-{version}.tgz"
            content = module(name, version, word, needs or {})
        return self.serve(name, version, file, content, needs=needs, honest=honest)

    def serve(
        self,
        name: str,
        version: str,
        file: str,
        content: bytes,
        *,
        needs: Mapping[str, str] | None = None,
        honest: bool = True,
    ) -> str:
        """Serve a file of a version; return its hash as the launcher writes it."""
        path = f"/files/{file}"
        self.served[path] = content
        if honest:
            self.stated[path] = content
        self._versions.setdefault(name, {})[path] = version
        self._needs[path] = dict(needs or {})
        return self._hash(content)

    def _hash(self, content: bytes) -> str:
        if self.kind == "uvx":
            return "sha256:" + hashlib.sha256(content).hexdigest()
        return "sha512-" + base64.b64encode(hashlib.sha512(content).digest()).decode()

    def answer(self, path: str) -> tuple[bytes, str] | None:
        """Return what lies at a path, and its type."""
        if path in self.served:
            return self.served[path], "application/octet-stream"
        name = unquote(path).removeprefix("/simple/").strip("/")
        if name not in self._versions:
            return None
        if self.kind == "uvx":
            links = (
                f'<a href="{file}#{self._hash(self.stated[file]).replace(":", "=")}">'
                f"{file.removeprefix('/files/')}</a>"
                for file in self._versions[name]
            )
            return f"<html><body>{''.join(links)}</body></html>".encode(), "text/html"
        return json.dumps(self._packument(name)).encode(), "application/json"

    def _packument(self, name: str) -> dict[str, Any]:
        versions = {
            version: {
                "name": name,
                "version": version,
                "bin": {name: "start.js"},
                "dependencies": self._needs[path],
                "dist": {
                    "tarball": self.address + path,
                    "integrity": self._hash(self.stated[path]),
                },
            }
            for path, version in self._versions[name].items()
        }
        return {"name": name, "dist-tags": {"latest": [*versions][-1]}, "versions": versions}


@contextmanager
def registry(kind: Kind) -> Generator[Registry]:
    """Serve a registry on loopback."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = served.answer(self.path.partition("?")[0])
            content, kind = found or (b"{}", "application/json")
            self.send_response(200 if found else 404)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            self.send_header("Cache-Control", "no-cache")
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(content)

        do_HEAD = do_GET  # noqa: N815 - the base class's naming

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    served = Registry(kind, f"http://127.0.0.1:{server.server_port}")
    thread = Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield served
    finally:
        server.shutdown()
        thread.join(10)
        server.server_close()
