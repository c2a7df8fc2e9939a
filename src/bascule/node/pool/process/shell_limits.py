"""Limits where there is no warden: the shell sets them and becomes the server's program."""

from __future__ import annotations

from dataclasses import replace

from bascule.errors import LaunchDenied
from bascule.model.sandbox import Standing, acceptable
from bascule.node.pool.process.plan import Confinement
from bascule.node.pool.process.spawn import Launch

_WHY = "nothing more than limits works here: no warden can start"


def limited(launch: Launch, confinement: Confinement) -> tuple[Launch, Standing]:
    """Return a launch with its limits, or raise ``LaunchDenied`` when that is not enough."""
    sandbox = confinement.sandbox
    if "limits" not in acceptable(sandbox) or sandbox.network == "egress":
        raise LaunchDenied(f'sandbox.level "{sandbox.level}": {_WHY}')
    steps = ["ulimit -c 0", f"ulimit -n {sandbox.open_files}"]
    if sandbox.cpu_seconds is not None:
        steps.append(f"ulimit -t {sandbox.cpu_seconds}")
    script = "; ".join([*steps, 'exec "$0" "$@"'])
    standing = Standing(
        asked=sandbox.level,
        in_force="limits",
        why="" if sandbox.level == "limits" else _WHY,
    )
    return replace(launch, argv=("/bin/sh", "-c", script, *launch.argv)), standing
