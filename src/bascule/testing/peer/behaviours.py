"""What tools do: each function is one ``kind`` of the script's behaviours.

A behaviour answers the call, leaves
it open, or does something and goes on with the step under ``then``.
"""

from __future__ import annotations

import json
import os
import select
import signal

from bascule.testing.peer.frames import META, Call, Server, append, tag, wait_for_ever, write

TYPE_CHECKING = False
if TYPE_CHECKING:
    from bascule.testing.peer.frames import Behaviour, Json, Step

GRANDCHILD_LIFE_SECONDS = 600
LEVELS = "debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"


def text(server: Server, call: Call, body: str, **more: object) -> None:
    """Answer with one text block."""
    server.complete(call, {"content": [{"type": "text", "text": body}], **more})


def echo(server: Server, call: Call, spec: Json) -> None:
    """Give back the text (``text`` of the step wins over the argument)."""
    text(server, call, str(spec.get("text", call.arguments.get("text", ""))))


def structured(server: Server, call: Call, spec: Json) -> None:
    """Structured content (``value``, else the arguments) with its JSON as text."""
    value = spec.get("value", call.arguments)
    text(server, call, json.dumps(value), structuredContent=value)


def fixed(server: Server, call: Call, spec: Json) -> None:
    """The ``result`` of the script, dressed for the era unless ``bare``."""
    if spec.get("bare"):
        server.answer(call, spec.get("result"))
    else:
        server.complete(call, spec.get("result", {}))


def error(server: Server, call: Call, spec: Json) -> None:
    """A tool that failed and says so."""
    text(server, call, spec.get("text", "it went wrong"), isError=True)


def rpc_error(server: Server, call: Call, spec: Json) -> None:
    server.fail(call, spec.get("code", -32603), spec.get("message", "no"), spec.get("data"))


def never(server: Server, call: Call, spec: Json) -> None:
    """No answer, ever."""


def sleep_until_cancelled(server: Server, call: Call, spec: Json) -> None:
    """No answer until the client cancels; then none, or the late one under ``then``."""

    def cancelled() -> None:
        append(spec.get("path"), b"cancelled")
        if "then" in spec:
            server.perform(call, spec["then"])

    server.on_cancel[call.key] = cancelled


def progress(server: Server, call: Call, spec: Json) -> None:
    """``count`` progress notifications and then the answer; without a count, for ever.

    ``worded`` ones say the argument ``text`` as well.
    """
    count = spec.get("count")
    words = call.arguments.get("text") if spec.get("worded") else None
    if count is not None:
        for step in range(count):
            report(server, call, step + 1, count, words)
        server.go_on(call, spec)
        return
    state = {"step": 0}

    def again() -> bool:
        state["step"] += 1
        report(server, call, state["step"], None, words)
        return False

    server.wait_until(call, again)


def report(
    server: Server, call: Call, step: int, total: int | None, words: str | None = None
) -> None:
    """One progress notification, if the client asked for them."""
    if "progressToken" in call.meta:
        params: Json = {"progressToken": call.meta["progressToken"], "progress": step}
        if total is not None:
            params["total"] = total
        if words is not None:
            params["message"] = words
        server.notify(call, "notifications/progress", params)


def log(server: Server, call: Call, spec: Json) -> None:
    """``count`` log messages of a ``level``, if the client wants such, and then go on.

    They say the ``data``, else the argument ``text`` and a number; ``on="get"`` is as for requests.
    """
    level, count = spec.get("level", "info"), spec.get("count", 1)
    wanted = call.meta.get(META + "logLevel") if call.modern else server.log_level
    if wanted is not None and LEVELS.index(level) >= LEVELS.index(wanted):
        way = server.way(call, spec)
        for number in range(count):
            data = spec.get("data", f"{call.arguments.get('text')} {number + 1}")
            params = {"level": level, "logger": "scripted", "data": data}
            server.notify(way, "notifications/message", params)
    server.go_on(call, spec)


def gate(server: Server, call: Call, spec: Json) -> None:
    """Go on when the file at ``path`` exists, or once the client has notified ``method``."""
    path, method = spec.get("path"), spec.get("method")

    def is_open() -> bool:
        passed = os.access(path, os.F_OK) if path is not None else method in server.seen
        if passed:
            server.go_on(call, spec)
        return passed

    server.wait_until(call, is_open)


def busy(server: Server, call: Call, spec: Json) -> None:
    """Work for ``seconds`` and read nothing meanwhile, as a server with one thread does; go on."""
    select.select((), (), (), spec["seconds"])
    server.go_on(call, spec)


def big(server: Server, call: Call, spec: Json) -> None:
    """A text of ``bytes`` bytes."""
    text(server, call, spec.get("fill", "x") * spec["bytes"])


def ledger(server: Server, call: Call, spec: Json) -> None:
    """Execute: one line (the arguments) to the file at ``path``, then go on."""
    append(spec.get("path", server.script.get("ledger")), json.dumps(call.arguments).encode())
    server.go_on(call, spec)


def env(server: Server, call: Call, spec: Json) -> None:
    """What the process was given: variables, directory, ids, open descriptors."""
    value = {
        "env": dict(os.environ),
        "cwd": os.getcwd(),  # noqa: PTH109 (pathlib is slow to start)
        "pid": os.getpid(),
        "ppid": os.getppid(),
        "fds": descriptors(),
    }
    text(server, call, json.dumps(value), structuredContent=value)


def descriptors() -> list[str]:
    """What each open descriptor is, where the system can tell."""
    found: list[str] = []
    for descriptor in range(64):
        try:
            target = os.readlink(f"/proc/self/fd/{descriptor}")  # noqa: PTH115
        except OSError:
            continue
        found.append(f"{descriptor} {target}")
    return found


def spawn_grandchild(server: Server, call: Call, spec: Json) -> None:
    """A detached process (setsid, double fork) deaf to SIGTERM; the answer is its pid."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.setsid()
        if os.fork() == 0:
            be_a_grandchild(writer, hold_pipes=bool(spec.get("hold_pipes")))
        os._exit(0)
    os.close(writer)
    os.waitpid(child, 0)
    pid = os.read(reader, 32)
    os.close(reader)
    append(spec.get("path"), pid)
    if "then" in spec:
        server.perform(call, spec["then"])
    else:
        text(server, call, pid.decode())


def be_a_grandchild(writer: int, *, hold_pipes: bool) -> None:
    """Tell the pid and stay, holding the server's pipes or not."""
    for deaf_to in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(deaf_to, signal.SIG_IGN)
    signal.alarm(GRANDCHILD_LIFE_SECONDS)
    if not hold_pipes:
        for descriptor in (0, 1, 2):
            os.close(descriptor)
    os.write(writer, str(os.getpid()).encode())
    os.close(writer)
    wait_for_ever()


def input_required(server: Server, call: Call, spec: Json) -> None:
    """Ask for input ``rounds`` times, then answer with what came."""
    state = call.params.get("requestState")
    done = int(state.removeprefix("round-")) if isinstance(state, str) else 0
    if done >= spec.get("rounds", 1):
        text(server, call, json.dumps(call.params.get("inputResponses")))
        return
    question = {"method": "elicitation/create", "params": {"message": "Who are you?"}}
    server.answer(
        call,
        {
            "resultType": "input_required",
            "inputRequests": spec.get("requests", {"who": question}),
            "requestState": f"round-{done + 1}",
        },
    )


def server_request(server: Server, call: Call, spec: Json) -> None:
    """Ask the client something and answer with what it said, as JSON."""
    server.questions += 1
    key = f"ask-{server.questions}"
    server.asked[key] = lambda message: text(server, call, json.dumps(message))
    request: Json = {
        "jsonrpc": "2.0",
        "id": key,
        "method": spec.get("method", "sampling/createMessage"),
        "params": spec.get("params", {"messages": [], "maxTokens": 1}),
    }
    server.send(server.way(call, spec), request)


def change_tools(server: Server, call: Call, spec: Json) -> None:
    """Replace the list (``tools``), say so ``times`` times, then go on."""
    server.tools = spec.get("tools", server.tools)
    server.announce(spec.get("times", 1))
    server.go_on(call, spec)


def end_subscriptions(server: Server, call: Call, spec: Json) -> None:
    """End every subscription with a result, then go on."""
    listeners, server.listeners = server.listeners, []
    for listener in listeners:
        server.answer(listener, {"resultType": "complete", "_meta": tag(listener.id)})
    server.go_on(call, spec)


def stderr(server: Server, call: Call, spec: Json) -> None:
    """``bytes`` bytes (or the ``text``) to stderr, then go on."""
    said = spec.get("text", "").encode() + b"\n"
    total = spec.get("bytes", len(said))
    line = said if len(said) > 1 else b"e" * 99 + b"\n"
    for start in range(0, total, 100 * len(line)):
        write((line * 100)[: total - start], 2)
    server.go_on(call, spec)


def asked(server: Server, call: Call, spec: Json) -> None:
    """Do what the argument ``do`` says, so that each call picks its own fate."""
    server.perform(call, call.arguments.get("do", "echo"))


def once(server: Server, call: Call, spec: Json) -> None:
    """``first`` the first time in the life of the file at ``path``, ``then`` afterwards."""
    try:
        os.close(os.open(spec["path"], os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        server.go_on(call, spec)
    else:
        server.perform(call, spec["first"])


def turns(server: Server, call: Call, spec: Json) -> None:
    """The ``steps`` one after the other, one per call; the last one stays."""
    steps: list[Step] = spec["steps"]
    server.perform(call, steps.pop(0) if len(steps) > 1 else steps[0])


BEHAVIOURS: dict[str, Behaviour] = {
    "asked": asked,
    "big": big,
    "busy": busy,
    "change_tools": change_tools,
    "echo": echo,
    "end_subscriptions": end_subscriptions,
    "env": env,
    "error": error,
    "fixed": fixed,
    "gate": gate,
    "input_required": input_required,
    "ledger": ledger,
    "log": log,
    "never": never,
    "once": once,
    "progress": progress,
    "rpc_error": rpc_error,
    "server_request": server_request,
    "sleep_until_cancelled": sleep_until_cancelled,
    "spawn_grandchild": spawn_grandchild,
    "stderr": stderr,
    "structured": structured,
    "turns": turns,
}
