"""The loop and the wire of the scripted server: read lines, keep calls open, write frames.

One thread: a behaviour that has to wait leaves a *ticker* behind and lets the loop go on reading,
so that a hundred calls may be open at once.
"""

from __future__ import annotations

import json
import os
import select
import signal

TYPE_CHECKING = False  # importing typing would cost a tenth of the start
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Json = dict[str, Any]
    Step = Json | str
    Handler = Callable[["Server", "Call"], None]
    Behaviour = Callable[["Server", "Call", Json], None]

META = "io.modelcontextprotocol/"
LIST_CHANGED = "notifications/tools/list_changed"
TICK_SECONDS = 0.005
PIPE_ATOM = 4096  # a pipe that polls as writable takes this much without blocking


class Call:
    """One request from the client; ``id`` is None for a step taken at the start."""

    __slots__ = ("id", "method", "modern", "params")

    def __init__(self, message: Json) -> None:
        self.id = message.get("id")
        self.method: str = message.get("method", "")
        self.params: Json = message.get("params") or {}
        self.modern = META + "protocolVersion" in self.meta

    @property
    def key(self) -> object:
        """What tells this call from all others that are open."""
        return self.id

    @property
    def meta(self) -> Json:
        """The request's ``_meta``."""
        return self.params.get("_meta") or {}

    @property
    def arguments(self) -> Json:
        return self.params.get("arguments") or {}


class Server:
    """The loop, the frames and the state of one scripted server."""

    def __init__(
        self, script: Json, methods: dict[str, Handler], behaviours: dict[str, Behaviour]
    ) -> None:
        self.script = script
        self.methods = methods
        self.behaviours = behaviours
        self.tools: list[Json] = script.get("tools", [])
        self.initialised = False
        self.tickers: dict[object, Callable[[], bool]] = {}
        self.on_cancel: dict[object, Callable[[], None]] = {}
        self.listeners: list[Call] = []
        self.questions = 0
        self.asked: dict[str, Callable[[Json], None]] = {}
        self.seen: set[str] = set()
        self.log_level = "debug"  # of legacy clients
        self.pieces: list[bytes] = []

    def run(self) -> None:
        """Take the steps of the start, then serve until the input closes."""
        for step in self.script.get("at_start", []):
            self.perform(Call({}), step)
            while self.tickers:
                select.select((), (), (), TICK_SECONDS)
                self.tick()
        while self.turn():
            pass
        if self.script.get("ignore_eof"):
            wait_for_ever()

    def turn(self) -> bool:
        """Read what there is, or tick; false when the input is closed."""
        ready, _, _ = select.select((0,), (), (), TICK_SECONDS if self.tickers else None)
        if ready:
            data = os.read(0, 1 << 16)
            if not data:
                return False
            self.feed(data)
        self.tick()
        return True

    def tick(self) -> None:
        """Let every waiting call see whether its time has come."""
        for key, ticker in list(self.tickers.items()):
            if key in self.tickers and ticker():
                self.tickers.pop(key, None)

    def feed(self, data: bytes) -> None:
        """Split the input into lines and handle each."""
        *lines, rest = data.split(b"\n")
        for line in lines:
            whole = b"".join((*self.pieces, line))
            self.pieces.clear()
            if whole.strip():
                append(self.script.get("journal"), whole)
                self.handle(json.loads(whole))
        self.pieces.append(rest)

    def handle(self, message: Json) -> None:
        """A request, a notification or an answer to a request of ours."""
        if "method" not in message:
            self.asked.pop(str(message.get("id")), ignore)(message)
        elif "id" in message:
            self.request(Call(message))
        else:
            self.notified(message["method"], message.get("params") or {})

    def notified(self, method: str, params: Json) -> None:
        """Note that the client said so, and drop a call it no longer wants."""
        self.seen.add(method)
        if method == "notifications/cancelled":
            self.forget(params.get("requestId"))

    def forget(self, key: object) -> None:
        """Nobody waits for this call any more."""
        self.tickers.pop(key, None)
        self.on_cancel.pop(key, nothing)()
        self.listeners = [listener for listener in self.listeners if listener.key != key]

    def request(self, call: Call) -> None:
        """What the script says for this method, else what the protocol says."""
        call.modern = call.modern and self.script.get("era") != "legacy"
        step = self.script.get("on", {}).get(call.method)
        if step is not None:
            self.perform(call, step)
            return
        self.methods.get(call.method, self.methods[""])(self, call)

    def perform(self, call: Call, step: Step) -> None:
        """Do one step of the script for this call."""
        spec = {"kind": step} if isinstance(step, str) else step
        behaviour = self.behaviours.get(spec["kind"])
        if behaviour is None:
            raise SystemExit(f"the script asks for an unknown behaviour: {spec['kind']!r}")
        behaviour(self, call, spec)

    def go_on(self, call: Call, spec: Json) -> None:
        """What comes after this step: an echo unless the script says otherwise."""
        following = spec.get("then", "echo" if call.id is not None else None)
        if following is not None:
            self.perform(call, following)

    def wait_until(self, call: Call, ready: Callable[[], bool]) -> None:
        """Keep the call open, asking ``ready`` now and then, until it says yes."""
        self.tickers[call.key if call.id is not None else object()] = ready

    def send(self, call: Call, frame: Json) -> None:
        """Write a frame that belongs to a call, after the script's noise."""
        noise = self.script.get("noise")
        lead = noise.encode() + b"\n" if noise else b""
        self.emit(call, lead + json.dumps(frame).encode() + b"\n")

    def notify(self, call: Call, method: str, params: Json | None = None) -> None:
        """Send a notification on the wire of a call."""
        given = {} if params is None else {"params": params}
        self.send(call, {"jsonrpc": "2.0", "method": method, **given})

    def emit(self, call: Call, lines: bytes) -> None:
        """Put lines on the wire; here all calls share one."""
        write(lines)

    def settled(self, call: Call) -> None:
        """All was said that this call is going to hear; a wire of its own may end."""

    def way(self, call: Call, spec: Json) -> Call:
        """Where the client is told or asked something; another wire may have several ways."""
        return call

    def answer(self, call: Call, result: object) -> None:
        """Answer with a result exactly as given."""
        if call.id is not None:
            self.send(call, {"jsonrpc": "2.0", "id": call.id, "result": result})
            self.settled(call)

    def complete(self, call: Call, result: Json) -> None:
        """Answer with a result dressed for the era of the request."""
        self.answer(call, self.dressed(call, result))

    def dressed(self, call: Call, result: Json) -> Json:
        """Add what a modern result must carry; a legacy one must not show it."""
        if not call.modern:
            return result
        kind = {} if self.script.get("omit_result_type") else {"resultType": "complete"}
        return {**kind, **result, "_meta": {META + "serverInfo": self.info()}}

    def fail(self, call: Call, code: int, message: str, data: object = None) -> None:
        """Answer with a JSON-RPC error."""
        error: Json = {"code": code, "message": message}
        if data is not None:
            error["data"] = data
        if call.id is not None:
            self.send(call, {"jsonrpc": "2.0", "id": call.id, "error": error})
            self.settled(call)

    def info(self) -> Json:
        return {"name": self.script.get("name", "scripted"), "version": "1.0.0"}

    def capabilities(self) -> Json:
        """What is offered; the script may say anything else."""
        return self.script.get("capabilities", {"tools": {"listChanged": True}})

    def hints(self) -> Json:
        """Caching hints of modern results; null leaves one out."""
        hints = {
            "ttlMs": self.script.get("ttl_ms", 0),
            "cacheScope": self.script.get("cache_scope", "private"),
        }
        return {key: value for key, value in hints.items() if value is not None}

    def announce(self, times: int) -> None:
        """Say that the list changed, as each era wants to hear it."""
        for listener in self.listeners * times:
            self.notify(listener, LIST_CHANGED, {"_meta": tag(listener.id)})
        for call in self.initialised_calls() * times:
            self.notify(call, LIST_CHANGED)

    def initialised_calls(self) -> list[Call]:
        """Return a call on each wire whose client has shaken hands and subscribed to nothing."""
        return [Call({})] if self.initialised and not self.listeners else []


def nothing() -> None:
    """What a cancellation does to a call that does not care."""


def ignore(message: Json) -> None:
    """An answer to a question nobody asked."""


def tag(key: object) -> Json:
    """Which subscription a notification belongs to."""
    return {META + "subscriptionId": key}


def write(data: bytes, descriptor: int = 1) -> None:
    """Write all of it, however long the other side takes."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def pour(chunk: bytes, total: int) -> None:
    """Write ``total`` bytes of ``chunk`` over and over; end when the input is closed."""
    watch = select.poll()
    watch.register(1, select.POLLOUT)
    watch.register(0, 0)
    atom = (chunk * (PIPE_ATOM // len(chunk)))[:PIPE_ATOM]
    while total > 0:
        if any(descriptor == 0 for descriptor, _ in watch.poll()):
            os._exit(0)
        total -= os.write(1, atom[:total])


def append(path: str | None, line: bytes) -> None:
    """Add one line to a file that others read, in one write."""
    if path is None:
        return
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, line + b"\n")
    finally:
        os.close(descriptor)


def wait_for_ever() -> None:
    """Do nothing until a signal ends the process."""
    while True:
        signal.pause()
