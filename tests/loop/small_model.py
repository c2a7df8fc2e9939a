"""A small language model in a process of its own: prints its address, ends with its input.

python tests/loop/small_model.py FOLDER      # where its two wheels are installed
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Any


def main(folder: str) -> None:
    """Serve until the input ends."""
    sys.path.insert(0, folder)
    llama: Any = import_module("xllamacpp")
    params = llama.CommonParams()
    params.model.path = str(next(Path(folder).rglob("*.gguf")))
    params.n_ctx = 2048
    params.n_parallel = 1
    params.cpuparams.n_threads = 1  # more of them spin while they wait for each other
    serving = llama.Server(params)
    sys.stdout.write(f"{serving.listening_address}\n")
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    main(sys.argv[1])
