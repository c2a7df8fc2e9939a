"""How long the long tests are: a tenth in ``make test``, in full in ``make soak``.

A test with a large count says ``for _ in range(scaled(200))``. A test that makes sense only in
its long form carries ``@pytest.mark.soak`` and is left out of ``make test`` altogether.
"""

from __future__ import annotations

import os

SOAK = os.environ.get("BASCULE_SOAK") == "1"


def scaled(full: int) -> int:
    """Return the count to run: ``full`` under ``make soak``, otherwise a tenth, at least one."""
    return full if SOAK else max(1, full // 10)
