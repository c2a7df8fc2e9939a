"""One run of ``bascule run``: which module, what it reaches, and how its end is told."""

from __future__ import annotations

import argparse
import asyncio
import os
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from msgspec import to_builtins

from bascule.app.guests import (
    BadModule,
    HiddenValue,
    NoModule,
    Program,
    here,
    read_module,
    served,
    user_modules,
    variables_of,
)
from bascule.cli.command import Plan, print_line, run_async, warn
from bascule.cli.endpoint import URL_VARIABLE, reach, registry_of
from bascule.cli.failures import complain, report
from bascule.cli.guest_output import GuestOutput, exit_code
from bascule.cli.parser import EXIT_USAGE
from bascule.cli.progress import StatusLine
from bascule.cli.task_choice import TASK_VARIABLE, known_task
from bascule.cli.tool_approval import approver_of
from bascule.cli.tool_session import Elsewhere, at_process, bridge_over, read_source, rules_of
from bascule.clock import SYSTEM_CLOCK
from bascule.doors.hostcalls.executables import arguments_of
from bascule.doors.hostcalls.guest import Exit
from bascule.doors.hostcalls.host import GuestLimits, Host
from bascule.errors import InvalidRecord
from bascule.model.task import Executable, TaskRecord
from bascule.node.bridge.opening import Opening
from bascule.wire.api.guests import Invocation

_MIB = 1024 * 1024
#: What a module can address, and what the engine can count.
_MOST_MEMORY = 4096 * _MIB
_MOST_FUEL = 2**63 - 1
#: How long a token lives that is made for a guest without a time of its own; it ends with it.
_TOKEN_SECONDS = 86_400.0
_GRACE_SECONDS = 60.0
_WHICH = "give GUEST, a .wasm file, or a task that names its executable: --task TASK"
_OPTIONS = ("registry_dir", "task", "api_url", "token", "data_dir", "session", "server")


def run_guest(arguments: argparse.Namespace) -> int:
    """Run a guest, and return the exit code of the command."""
    source = _source(arguments)
    try:
        return run_async(_run(arguments, source))
    except (BadModule, HiddenValue, NoModule) as error:
        report(error, as_json=arguments.json)
        return EXIT_USAGE


def _source(arguments: argparse.Namespace) -> Plan | Elsewhere | None:
    """Return whose session the guest has: of files, of a process, or none if nothing names one."""
    source = read_source(arguments)
    named = any(vars(arguments)[name] for name in _OPTIONS)
    if named or os.environ.get(URL_VARIABLE) or os.environ.get(TASK_VARIABLE):
        return source
    if arguments.guest is None:
        arguments.usage(_WHICH)
    return None


async def _run(arguments: argparse.Namespace, source: Plan | Elsewhere | None) -> int:
    if source is None:
        job = Job(arguments)
        return await job.run(here(job.host))
    warn(source.warnings)
    if isinstance(source, Plan):
        return await _over_files(arguments, source)
    return await at_process(source, lambda task: _at_process(source, task))


async def _over_files(arguments: argparse.Namespace, plan: Plan) -> int:
    executable = plan.task.executable if isinstance(plan.task, TaskRecord) else None
    job = Job(arguments, executable)
    bridge = bridge_over(plan, approver_of(arguments, StatusLine()))
    opening = Opening(request=plan.request, task=plan.task)
    return await job.run(here(job.host, bridge, opening, rules_of(plan)))


async def _at_process(source: Elsewhere, task: str | None) -> int:
    arguments = source.arguments
    executable = None if arguments.guest else await _executable_of(arguments, task)
    job = Job(arguments, executable)
    limit: float | None = arguments.timeout
    token_seconds = _TOKEN_SECONDS if limit is None else limit + _GRACE_SECONDS
    async with reach(arguments, "client", task, seconds=token_seconds) as found:
        there = served(
            job.host,
            Opening(request=source.request, task=task),
            url=found.url,
            token=found.token,
            tls_ca=found.tls_ca,
            insecure=found.insecure,
        )
        return await job.run(there)


async def _executable_of(arguments: argparse.Namespace, task: str | None) -> Executable | None:
    if task is None:
        arguments.usage(_WHICH)
        return None
    async with registry_of(arguments) as registry:
        tasks = (await registry.snapshot()).tasks
    return tasks[known_task(task, [*tasks])].executable


class Job:
    """A program that is ready to run, what it is given, and who hears it."""

    def __init__(self, arguments: argparse.Namespace, executable: Executable | None = None) -> None:
        """Compile what is named on the command line, else the task's executable."""
        self._arguments = arguments
        self._output = GuestOutput()
        env = dict(arguments.env)
        args: tuple[str, ...] = tuple(arguments.arg)
        if arguments.guest is not None:
            content = read_module(Path(arguments.guest))
        elif executable is not None:
            content = read_module(Path(executable.path), executable.checksum_sha256)
            env = {**variables_of(executable, frozenset(env)), **env}
            args = _arguments(executable, args)
        else:
            raise NoModule(f"the task names no executable (executable.path); {_WHICH}")
        limits = _limits(arguments)
        self._program = Program(content, limits, user_modules(os.environ))
        self.host = Host(
            listener=self._output.hear,
            model=arguments.model,
            limits=limits,
            args=args,
            env=tuple(env.items()),
        )

    async def run(self, reached: AbstractAsyncContextManager[Host]) -> int:
        """Run it with what it reaches, tell how it ended, and return the exit code."""
        async with reached as host:
            found = await self._ended(host)
        return self._tell(found, host)

    async def _ended(self, host: Host) -> Exit:
        """Run it to its end; Ctrl-C is one, and so is a reader who goes away."""
        loop, began = asyncio.get_running_loop(), SYSTEM_CLOCK.monotonic()
        running = loop.create_task(self._program.run(host))
        self._output.when_broken(lambda: loop.call_soon_threadsafe(running.cancel))
        try:
            return await running
        except asyncio.CancelledError:
            if self._output.broken:
                raise BrokenPipeError from None
            return Exit(reason="interrupted", seconds=SYSTEM_CLOCK.monotonic() - began)

    def _tell(self, found: Exit, host: Host) -> int:
        code = exit_code(found.reason, found.code)
        words = _words(found, host.limits)
        if words:
            complain([words])
        if self._arguments.json:
            self._output.end_line()
            print_line(self._arguments, _plain(found, code, host), "")
        return code


def _arguments(executable: Executable, more: tuple[str, ...]) -> tuple[str, ...]:
    try:
        return arguments_of(executable, Invocation(args=more))
    except InvalidRecord as error:
        raise HiddenValue(str(error)) from None


def _limits(arguments: argparse.Namespace) -> GuestLimits:
    usual = GuestLimits()
    return GuestLimits(
        seconds=arguments.timeout,
        memory_bytes=min(arguments.memory * _MIB, _MOST_MEMORY),
        output_bytes=arguments.output_limit or usual.output_bytes,
        fuel=None if arguments.fuel is None else min(arguments.fuel, _MOST_FUEL),
    )


def _words(found: Exit, limits: GuestLimits) -> str:
    """Say how a guest ended, unless it was by its own word."""
    why = f": {found.message}" if found.message else ""
    return {
        "exited": "",
        "trapped": f"the guest trapped{why}",
        "failed": f"the guest could not be run{why}",
        "out_of_fuel": f"the guest used up its fuel of {limits.fuel} (--fuel)",
        "output_limit": f"the guest said more than {limits.output_bytes} bytes (--output-limit)",
        "timeout": f"the guest was ended after {limits.seconds:g} s (--timeout)"
        if limits.seconds is not None
        else "",
        "interrupted": "the guest was interrupted",
    }[found.reason]


def _plain(found: Exit, code: int, host: Host) -> dict[str, object]:
    """Return how a guest ended, for a program that reads it."""
    is_known = found.reason != "interrupted"
    budgets = {
        **to_builtins(host.limits),
        "max_iterations": host.settings.max_iterations,
        "max_total_tool_calls": host.settings.max_total_tool_calls,
    }
    return {
        "exit": code,
        "reason": found.reason,
        "message": found.message,
        "seconds": round(found.seconds, 3),
        "calls": found.calls if is_known else None,
        "budgets": budgets,
        "peak_memory": found.peak_memory if is_known else None,
    }
