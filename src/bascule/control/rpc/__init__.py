"""The registry over gRPC: the port, who may use it, and what each service does.

Only what opens the port imports this; a process without one does not load grpc.
"""

from __future__ import annotations

import os

# Before grpc is imported: this process starts others, and no handler of grpc's may run in them.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
