"""``bascule`` on a machine where no level of isolation above ``limits`` works.

The kernel refuses what the others need: Landlock and new namespaces, bubblewrap's too.
"""

from __future__ import annotations

import errno
import runpy
import struct

from bascule.node.pool.process.confinement import kernel, seccomp

_LANDLOCK_CREATE_RULESET = 444
_LOAD, _IF_EQUAL, _RETURN, _ALLOW, _ERRNO = 0x20, 0x15, 0x06, 0x7FFF0000, 0x00050000


def forbid_isolation() -> None:
    """Have this process and all that come of it do without, for good."""
    words = (
        (_LOAD, 0, 0, 0),
        (_IF_EQUAL, 0, 1, _LANDLOCK_CREATE_RULESET),
        (_RETURN, 0, 0, _ERRNO | errno.ENOSYS),
        (_RETURN, 0, 0, _ALLOW),
    )
    kernel.gain_no_privileges()
    kernel.filter_calls(b"".join(struct.pack("HBBI", *word) for word in words))
    kernel.filter_calls(
        seccomp.program(
            kernel.MACHINE,
            network="full",
            local_sockets=True,
            own_network=False,
            counted=True,
            alone_as=None,
        )
    )


if __name__ == "__main__":
    forbid_isolation()
    runpy.run_module("bascule", run_name="__main__", alter_sys=True)
