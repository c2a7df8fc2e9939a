"""``bascule preflight registry``: what it finds on a machine, and how it says to mend it."""

from __future__ import annotations

import asyncio
import datetime
import os
import socket
import sqlite3
import stat
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from bascule.app.data_dir import served_alone
from bascule.app.settings import ServerSettings
from bascule.auth.token_store import FILE_NAME, NEWEST_FORM, open_tokens
from bascule.cli import machine_checks
from bascule.cli.findings import Finding
from bascule.testing.clock import FakeClock
from tests.cli.served import command

EVERYWHERE = "0.0.0.0"  # noqa: S104 - to be refused
DAY = 86_400.0
#: When the certificates of these tests begin.
BEGIN = 1_800_000_000.0
#: The address of no machine: it is kept for documents.
ELSEWHERE = "192.0.2.1"


def preflight(data: Path, *words: str, **env: str) -> tuple[int, dict[str, Finding]]:
    given = ("--port", "0", *words) if "--port" not in words else words
    done = command("preflight", "registry", "--data-dir", str(data), *given, "--json", **env)
    report = done.json
    found = {one["check"]: Finding(**one) for one in report["checks"]}
    assert report["ok"] == (done.code == 0)
    return done.code, found


def files_in(folder: Path) -> dict[Path, tuple[int, bytes]]:
    return {
        path: (path.stat().st_mtime_ns, path.read_bytes())
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.mark.requirement("cli:preflight")
def test_a_machine_that_can_serve_is_told_so_and_left_as_it_was(tmp_path: Path):
    data = tmp_path / "data"
    code, found = preflight(data)
    assert (code, {one.verdict for one in found.values()}) == (0, {"ok"})
    assert "is made at the first start" in found["data directory"].words
    assert not data.exists()


@pytest.mark.requirement("cli:preflight")
def test_findings_are_printed_one_a_line_with_a_way_to_mend_each(tmp_path: Path):
    done = command("preflight", "registry", "--data-dir", str(tmp_path), "--host", ELSEWHERE)
    assert done.code == 1
    lines = done.out.splitlines()
    assert lines[0].split() == ["ok", "data", "directory", f"{tmp_path},", "mode", "0700"]
    [at] = [number for number, line in enumerate(lines) if line.startswith("failed")]
    assert ELSEWHERE in lines[at]
    assert lines[at + 1].strip().startswith("mend:")


def test_a_data_directory_that_is_a_file_or_open_to_all_is_refused(tmp_path: Path):
    file = tmp_path / "file"
    file.touch()
    code, found = preflight(file)
    assert (code, found["data directory"].verdict) == (1, "failed")
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    code, found = preflight(shared)
    assert (code, found["data directory"].verdict) == (1, "failed")
    assert found["data directory"].mend == f"run chmod o-w {shared}, or name a new folder inside it"
    shared.chmod(0o755)
    code, found = preflight(shared)
    assert (code, found["data directory"].verdict) == (0, "warning")
    assert found["data directory"].mend == f"chmod 700 {shared}"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_data_directory_of_somebody_else_is_told(tmp_path: Path):
    theirs = tmp_path / "theirs"
    theirs.mkdir(mode=0o700)
    os.chown(theirs, 4711, -1)
    _, found = preflight(theirs)
    assert found["data directory"].verdict == "warning"
    assert "belongs to uid 4711" in found["data directory"].words


@pytest.mark.requirement("cli:preflight")
def test_a_data_directory_that_another_process_serves_is_refused(tmp_path: Path):
    with served_alone(tmp_path):
        (tmp_path / "url").write_text("http://127.0.0.1:9\n", encoding="utf-8")
        code, found = preflight(tmp_path)
    assert (code, found["other process"].verdict) == (1, "failed")
    assert "served by another process, at http://127.0.0.1:9" in found["other process"].words
    assert preflight(tmp_path)[0] == 0


@pytest.mark.requirement("cli:preflight")
def test_a_port_that_is_taken_is_told_with_how_to_find_who_has_it(tmp_path: Path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        code, found = preflight(tmp_path, "--port", port)
    assert (code, found["port"].verdict) == (1, "failed")
    assert f"127.0.0.1:{port}" in found["port"].words
    assert f":{port}" in (found["port"].mend or "")
    assert preflight(tmp_path, "--port", port)[0] == 0


def test_an_address_for_others_needs_tls_and_one_of_another_machine_is_refused(tmp_path: Path):
    code, found = preflight(tmp_path, "--host", EVERYWHERE)
    assert (code, found["port"].verdict) == (1, "failed")
    assert found["port"].mend == "--tls-certificate and --tls-key, or --insecure"
    assert preflight(tmp_path, "--host", EVERYWHERE, "--insecure")[0] == 0
    code, found = preflight(tmp_path, "--host", ELSEWHERE, "--insecure")
    assert (code, found["port"].verdict) == (1, "failed")
    assert "--host" in (found["port"].mend or "")


def test_a_clock_that_cannot_be_right_is_told():
    assert machine_checks.time_of_day(FakeClock(0.0)).verdict == "failed"
    assert machine_checks.time_of_day(FakeClock(BEGIN)).verdict == "ok"


@pytest.mark.requirement("cli:preflight")
async def test_a_file_of_a_newer_version_is_refused_and_not_touched(tmp_path: Path):
    async with open_tokens(tmp_path):
        pass
    with closing(sqlite3.connect(tmp_path / FILE_NAME)) as file:
        assert file.execute("PRAGMA user_version").fetchone() == (NEWEST_FORM,)
    code, found = await asyncio.to_thread(preflight, tmp_path)
    assert (code, found["form"].words) == (0, "as this version knows it: tokens.db")
    with closing(sqlite3.connect(tmp_path / FILE_NAME)) as file:
        file.execute(f"PRAGMA user_version = {NEWEST_FORM - 1}")
    before = files_in(tmp_path)
    code, found = await asyncio.to_thread(preflight, tmp_path)
    assert (code, "next start: tokens.db" in found["form"].words) == (0, True)
    with closing(sqlite3.connect(tmp_path / FILE_NAME)) as file:
        file.execute("PRAGMA user_version = 99")
    code, found = await asyncio.to_thread(preflight, tmp_path)
    assert (code, found["form"].verdict) == (1, "failed")
    assert "written by a newer one" in found["form"].words
    assert before.keys() == files_in(tmp_path).keys()


def test_a_server_key_that_others_may_read_or_that_is_none_is_refused(tmp_path: Path):
    key = tmp_path / "server.key"
    key.write_bytes(bytes(32))
    key.chmod(0o644)
    code, found = preflight(tmp_path)
    assert (code, found["server key"].mend) == (1, f"run chmod 600 {key}")
    key.chmod(0o600)
    assert preflight(tmp_path)[0] == 0
    key.write_bytes(b"short")
    code, found = preflight(tmp_path)
    assert (code, "which has 32 bytes" in found["server key"].words) == (1, True)


@pytest.mark.requirement("cli:preflight")
def test_the_variable_of_the_server_key_holds_a_key_and_no_other_one(tmp_path: Path):
    code, found = preflight(tmp_path, BASCULE_SERVER_KEY="a passphrase")
    assert (code, found["server key"].verdict) == (1, "failed")
    assert "a passphrase" not in found["server key"].words
    assert preflight(tmp_path, BASCULE_SERVER_KEY="00" * 32)[0] == 0
    key = tmp_path / "server.key"
    key.write_bytes(b"\1" * 32)
    key.chmod(0o600)
    code, found = preflight(tmp_path, BASCULE_SERVER_KEY="00" * 32)
    assert (code, "two different keys" in found["server key"].words) == (1, True)
    key.unlink()
    (tmp_path / FILE_NAME).touch()
    code, found = preflight(tmp_path)
    assert (code, "is missing, and there are tokens" in found["server key"].words) == (1, True)


# --- TLS files


def certificate(folder: Path, name: str, days: int) -> tuple[str, str]:
    """Write a certificate that is good for so many days, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    owner = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    begins = datetime.datetime.fromtimestamp(BEGIN, datetime.UTC)
    signed = (
        x509.CertificateBuilder()
        .subject_name(owner)
        .issuer_name(owner)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(begins)
        .not_valid_after(begins + datetime.timedelta(days=days))
        .sign(key, hashes.SHA256())
    )
    chain, private = folder / f"{name}.pem", folder / f"{name}.key"
    chain.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    private.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    private.chmod(stat.S_IRUSR | stat.S_IWUSR)
    return str(chain), str(private)


def looked(chain: str, key: str, at: float = BEGIN + DAY) -> Finding:
    server = ServerSettings(tls_certificate=chain, tls_key=key)
    return machine_checks.tls_files(server, FakeClock(at))


@pytest.mark.requirement("cli:preflight")
@pytest.mark.parametrize(
    ("at", "verdict", "words"),
    [
        (BEGIN + DAY, "ok", "and fits its key"),
        (BEGIN - DAY, "failed", "is not good before"),
        (BEGIN + 91 * DAY, "failed", "has expired"),
        (BEGIN + 80 * DAY, "warning", "less than 14 days"),
    ],
)
def test_a_certificate_is_good_for_as_long_as_it_says(
    tmp_path: Path, at: float, verdict: str, words: str
):
    found = looked(*certificate(tmp_path, "own", 90), at)
    assert (found.verdict, words in found.words) == (verdict, True)


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda _, key: key.unlink(), "cannot be read: No such file"),
        (lambda _, key: key.write_text("no key", encoding="utf-8"), "cannot be used with"),
        (
            lambda chain, _: chain.write_text("no certificate", encoding="utf-8"),
            "cannot be used with",
        ),
    ],
)
def test_tls_files_that_cannot_be_used_are_told(
    tmp_path: Path, spoil: Callable[[Path, Path], object], words: str
):
    chain, key = certificate(tmp_path, "own", 90)
    spoil(Path(chain), Path(key))
    found = looked(chain, key)
    assert (found.verdict, words in found.words) == ("failed", True)
    assert found.mend is not None


def test_a_certificate_with_the_key_of_another_is_refused(tmp_path: Path):
    chain, _ = certificate(tmp_path, "one", 90)
    _, key = certificate(tmp_path, "other", 90)
    found = looked(chain, key)
    assert (found.verdict, "does not fit" in found.words) == ("failed", True)


def test_a_key_that_others_may_read_is_a_warning(tmp_path: Path):
    chain, key = certificate(tmp_path, "own", 90)
    Path(key).chmod(0o640)
    found = looked(chain, key)
    assert (found.verdict, found.mend) == ("warning", f"chmod 600 {key}")
