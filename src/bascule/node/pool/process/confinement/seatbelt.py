"""The profile of macOS's own sandbox for a plan, and the command line that puts a program inside.

Of the rules about an operation the last one that matches decides. So the grants come first, then
what no server sees, then what the server has of its own, which may lie in a folder that is closed.
What every program needs to load at all is in the system's ``system.sb``.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from .root import Plan

PROGRAM = "/usr/bin/sandbox-exec"
#: Names of users, and the log. Not the services that hold keys: they answer for any file.
_SERVICES = (
    "com.apple.system.opendirectoryd.libinfo", "com.apple.system.opendirectoryd.membership",
    "com.apple.system.notification_center", "com.apple.system.logger", "com.apple.logd",
)  # fmt: skip
#: How names are looked up and certificates judged.
_NETWORK_SERVICES = (
    "com.apple.SystemConfiguration.DNSConfiguration", "com.apple.SystemConfiguration.configd",
    "com.apple.networkd", "com.apple.trustd", "com.apple.trustd.agent", "com.apple.ocspd",
)  # fmt: skip
_NAME_SOCKET = "/private/var/run/mDNSResponder"
_DEVICES = ("null", "zero", "random", "urandom", "tty", "stdin", "stdout", "stderr")
_READ = "file-read* file-map-executable process-exec*"
_WRITE = f"{_READ} file-write*"


def command(plan: Plan, argv: Sequence[str], program: str = PROGRAM) -> list[str]:
    """Return what to start in place of a command line."""
    return [program, "-p", profile(plan), *argv]


def profile(plan: Plan) -> str:
    """Return the rules of a plan: granted is what they name, and nothing else."""
    granted = [*plan["read"], *plan["write"]]
    links = [link for link, _ in plan["links"]]
    rules = [
        "(version 1)",
        "(deny default)",
        '(import "system.sb")',
        "(allow process-fork sysctl-read)",
        "(allow signal process-info* (target same-sandbox))",
        "(allow ipc-posix-sem)",
        _allow("mach-lookup", "global-name", _SERVICES),
        _allow("file-read*", "literal", ["/", *links]),
        _allow("file-read-metadata", "literal", _above(granted)),
        _allow(_READ, "subpath", plan["read"]),
        _allow(_WRITE, "subpath", plan["write"]),
        *_network(plan["network"]),
        _rule("deny", _WRITE, "subpath", plan["hide"]),
        _allow("file-read-metadata", "literal", _above(plan["own"])),
        _allow(_WRITE, "subpath", plan["own"]),
        _allow("file-read* file-write* file-ioctl", "literal", map("/dev/{}".format, _DEVICES)),
        _allow("file-read* file-write*", "subpath", ["/dev/fd"]),
    ]
    return "\n".join(filter(None, rules))


def _network(network: str) -> list[str]:
    """Return the rules for a network: all addresses, but no socket that is a file; or none."""
    if network != "full":
        return []
    return [
        "(allow system-socket)",
        "(allow network-outbound (remote ip))",
        "(allow network-inbound network-bind (local ip))",
        _allow("network-outbound", "literal", [_NAME_SOCKET]),
        _allow("mach-lookup", "global-name", _NETWORK_SERVICES),
    ]


def _above(paths: Iterable[str]) -> list[str]:
    """Return the folders on the way to paths, which may be looked at and not listed."""
    found: dict[str, None] = {}
    for path in paths:
        parts = path.split("/")[1:-1]
        for at in range(len(parts)):
            found["/" + "/".join(parts[: at + 1])] = None
    return list(found)


def _allow(operations: str, kind: str, values: Iterable[str]) -> str:
    return _rule("allow", operations, kind, values)


def _rule(verdict: str, operations: str, kind: str, values: Iterable[str]) -> str:
    """Return a rule about some things; "" about none, since without any it would be about all."""
    filters = " ".join(f"({kind} {_quoted(value)})" for value in values)
    return f"({verdict} {operations} {filters})" if filters else ""


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
