"""What approvals keep is sealed under the key of the secrets, and that key is not made twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from bascule.control.secret_keys import KEY_NAME
from bascule.db.private_files import KeyUnusable
from tests.control.keeping_secrets import opened


@pytest.mark.requirement("approval:sealed", "approval:fails-closed")
async def test_a_key_that_is_taken_away_is_missed_and_no_other_is_made(tmp_path: Path):
    key = tmp_path / KEY_NAME
    async with opened(tmp_path) as secrets:
        sealer = secrets.sealer()
        sealed = sealer.seal("apr-1", b"arguments")
        away = key.rename(tmp_path / "away")
        with pytest.raises(KeyUnusable, match="is missing"):
            sealer.seal("apr-2", b"others")
        with pytest.raises(KeyUnusable, match="is missing"):
            sealer.unseal("apr-1", sealed)
        assert not key.exists()
        away.rename(key)
        assert sealer.unseal("apr-1", sealed) == b"arguments"
        assert sealer.unseal("apr-2", sealed) is None
