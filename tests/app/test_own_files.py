"""The files that lead to PostgreSQL: no record reads them, and no local server is shown them."""

from __future__ import annotations

from pathlib import Path

import pytest

from bascule.app.settings import load_settings
from bascule.errors import LaunchDenied
from bascule.model.secret_use import SecretUse
from bascule.outbound.references import Reading, refuse_own_places

USE = SecretUse("server", "fs", "")
NAMED = ("key.pem", "cert.pem", "root.pem", "passwords")
OTHERS = ("listener.pem", "pgpass", "pgkey.pem")


def put(file: Path, text: str = "secret") -> str:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    return str(file)


@pytest.mark.requirement("security:own-files:postgres")
async def test_no_record_reads_a_file_that_leads_to_postgresql(tmp_path: Path):
    key, certificate, root, passwords, listener, passfile, variable = (
        put(tmp_path / name) for name in (*NAMED, *OTHERS)
    )
    dsn = f"postgresql://ada:hunter2@db/b?sslkey={key}&sslcert={certificate}&sslrootcert={root}"
    text = f"""[store]
dsn = "{dsn}&passfile={passwords}"
listen_dsn = "postgresql://ada@db/b?sslrootcert={listener}"
"""
    home = tmp_path / "home"
    usual = [put(home / name) for name in (".pgpass", ".pg_service.conf")]
    usual.append(put(home / ".postgresql" / "postgresql.key"))
    file = put(tmp_path / "bascule.toml", text)
    environ = {"HOME": str(home), "PGPASSFILE": passfile, "PGSSLKEY": variable}
    settings, _ = load_settings({}, environ, Path(file))
    reading = Reading(settings.rules(), environ, None, USE)
    named = [key, certificate, root, passwords, listener, passfile, variable]
    for path in (file, *named, *usual):
        with pytest.raises(LaunchDenied, match="Bascule's own"):
            await reading.value(f"file://{path}", "stdio.env.X")
        with pytest.raises(LaunchDenied, match="Bascule's own"):
            refuse_own_places(settings.rules(), [f"--file={path}"], None)
    beside = put(tmp_path / "beside")
    assert await reading.value(f"file://{beside}", "stdio.env.X") == "secret"
    refuse_own_places(settings.rules(), [str(tmp_path / "beside")], str(tmp_path))
