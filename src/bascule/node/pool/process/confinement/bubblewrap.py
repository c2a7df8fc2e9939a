"""The command line of bubblewrap for a plan."""

from __future__ import annotations

import os
import stat

from .root import DEVICES, TEMPORARY

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .root import Plan


def command(plan: Plan, cwd: str, program: list[str], filter_file: int) -> list[str]:
    """Return what to start in place of a program. ``filter_file`` holds the filter of calls."""
    words = [
        plan["bwrap"], "--unshare-user", "--unshare-ipc", "--unshare-pid", "--unshare-uts",
        "--unshare-cgroup-try", "--die-with-parent", "--new-session", "--cap-drop", "ALL",
        "--seccomp", str(filter_file),
    ]  # fmt: skip
    if plan["network"] != "full":
        words.append("--unshare-net")
    words += ["--proc", "/proc", "--dir", "/dev"]
    for name in DEVICES:
        words += ["--dev-bind-try", f"/dev/{name}", f"/dev/{name}"]
    for path in TEMPORARY:
        words += ["--perms", "1777", "--size", str(plan["temporary_bytes"]), "--tmpfs", path]
    for name, target in (("fd", ""), ("stdin", "/0"), ("stdout", "/1"), ("stderr", "/2")):
        words += ["--symlink", f"/proc/self/fd{target}", f"/dev/{name}"]
    words += _places(plan)
    if plan["egress"]:
        program = [*plan["shim"], plan["egress"], *program]
    # The first process inside is bubblewrap's own, without a filter: nobody is to write into it.
    words += ["--remount-ro", "/proc", "--remount-ro", "/"]
    return [*words, "--chdir", cwd, "--", *program]


def _places(plan: Plan) -> list[str]:
    words: list[str] = []
    grants = [(path, "--ro-bind-try") for path in plan["read"]]
    grants += [(path, "--bind-try") for path in plan["write"]]
    for path, how in sorted(grants, key=lambda each: (each[0].count("/"), each[1] == "--bind-try")):
        words += [how, path, path]
    for path, target in plan["links"]:
        words += ["--symlink", target, path]
    hidden: list[str] = []
    for path in plan["hide"]:
        try:
            folder = stat.S_ISDIR(os.stat(path).st_mode)
        except OSError:
            continue
        words += ["--tmpfs", path] if folder else ["--ro-bind", "/dev/null", path]
        hidden += [path] if folder else []
    for path in plan["own"]:
        words += ["--bind", path, path]
    for path in hidden:
        words += ["--remount-ro", path]
    return words
