"""Servers that others wrote, in processes of their own: uvicorn, hypercorn, Node and nginx."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from checks.npm import NODE
from tests.waits import blocked_until

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
APP = "tests.outbound.real_app:app"
#: Debian has it where only root looks.
NGINX = shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
NAMES = ["uvicorn", "uvicorn with h11", "hypercorn", "node"]


def command(name: str, descriptor: int) -> list[str]:
    """Return how a server is started on a listening socket; it ends idle connections soon."""
    python = [sys.executable, "-W", "ignore", "-m"]
    uvicorn = [*python, "uvicorn", APP, "--fd", str(descriptor), "--timeout-keep-alive", "1"]
    if name == "hypercorn":
        return [*python, "hypercorn", APP, "-b", f"fd://{descriptor}", "--keep-alive", "1"]
    if name == "node":
        return [str(NODE), str(HERE / "real_app.mjs"), str(descriptor)]
    return [*uvicorn, "--http", "h11" if name.endswith("h11") else "httptools"]


@contextmanager
def serving(name: str) -> Generator[int]:
    """Run a server while the block runs, and give its port: whoever connects early waits."""
    with socket.create_server(("127.0.0.1", 0), backlog=256) as listener:
        # uvicorn does not know what it is given, and would let half an answer wait for 40 ms.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        words = command(name, listener.fileno())
        with running(words, pass_fds=(listener.fileno(),)):
            yield listener.getsockname()[1]


@contextmanager
def running(words: list[str], pass_fds: tuple[int, ...] = ()) -> Generator[None]:
    """Run a server, and end it with the processes that it started itself."""
    process = subprocess.Popen(
        words,
        cwd=ROOT,
        pass_fds=pass_fds,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(20)


CONFIGURATION = """
daemon off;
master_process off;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
events {{ worker_connections 1024; }}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    client_max_body_size 64m;
    keepalive_requests {each};
    keepalive_timeout 1s;
    gzip on;
    gzip_types text/plain;
    server {{
        listen 127.0.0.1:{plain};
        listen 127.0.0.1:{secure} ssl;
        ssl_certificate {certificate};
        ssl_certificate_key {certificate};
        location /small {{ return 200 "small"; }}
        location /gone {{ return 444; }}
        location / {{
            proxy_pass http://127.0.0.1:{upstream};
            proxy_http_version 1.1;
            proxy_buffering off;
        }}
    }}
}}
"""


@contextmanager
def nginx(folder: Path, certificate: str, upstream: int, each: int) -> Generator[tuple[int, int]]:
    """Run nginx before another server, and give its plain port and its port with TLS."""
    assert NGINX is not None
    plain, secure = free_port(), free_port()
    path = folder / "nginx.conf"
    text = CONFIGURATION.format(
        folder=folder,
        certificate=certificate,
        upstream=upstream,
        each=each,
        plain=plain,
        secure=secure,
    )
    path.write_text(text, encoding="utf-8")
    with running([NGINX, "-p", str(folder), "-e", str(folder / "error.log"), "-c", str(path)]):
        blocked_until(lambda: listens(plain) and listens(secure))
        yield plain, secure


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return found.getsockname()[1]


def listens(port: int) -> bool:
    with socket.socket() as tried:
        return tried.connect_ex(("127.0.0.1", port)) == 0
