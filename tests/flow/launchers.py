"""A launcher that fetches, as uvx and npx do: slowly the first time, and into its HOME."""

from __future__ import annotations

import os
from pathlib import Path

_SCRIPT = """\
#!/bin/sh
echo "$@" >> "$0.starts"
if [ "$1" = --offline ]; then
    shift
    [ -e "$HOME/fetched" ] || { echo "the network was disabled" >&2; exit 1; }
elif [ -e "$0.alone" ]; then
    echo "error: Failed to fetch: there is no network" >&2
    exit 1
elif [ ! -e "$HOME/fetched" ]; then
    echo "Resolved 1 package" >&2
    echo "Downloading numpy (12.3 MiB) with ${KEY:-no key}" >&2
    read line < "%s"
    echo fetched > "$HOME/fetched"
    echo log > "$HOME/log"
fi
exec "$@"
"""


class Launcher:
    """The program, and the download that it waits for."""

    def __init__(self, folder: Path, name: str = "uvx") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._download = folder / "download"
        os.mkfifo(self._download)
        self.program = folder / name
        self.program.write_text(_SCRIPT % self._download, encoding="utf-8")
        self.program.chmod(0o755)

    @property
    def offline(self) -> list[bool]:
        """Whether each start so far was one without the network."""
        starts = self.program.with_suffix(".starts").read_text(encoding="utf-8").splitlines()
        return [start.startswith("--offline ") for start in starts]

    def cut_off(self) -> None:
        """Let there be no network from now on."""
        self.program.with_suffix(".alone").touch()

    def arrive(self) -> None:
        """Let the download that is waited for arrive."""
        self._download.write_text("done\n", encoding="utf-8")
