"""The log of a process: its two forms, what it hides, and that it never stands in the way."""

from __future__ import annotations

import json
import logging
import threading
from typing import Any

import pytest

from bascule.app.logs import hide, process_log
from bascule.app.settings_tables import LogSettings
from bascule.audit.log_lines import say

LOG = logging.getLogger("bascule.test")
KEY = "AKIA" + "Q3ZK7WXN5PLM2RTV"
TOKEN = "bsc_" + "x" * 43


class Lines:
    """What was written."""

    def __init__(self) -> None:
        self.raw = b""

    def write(self, line: bytes) -> None:
        self.raw += line

    @property
    def all(self) -> list[str]:
        return self.raw.decode().splitlines()


def written(settings: LogSettings, *lines: tuple[int, str, dict[str, Any]]) -> list[str]:
    out = Lines()
    with process_log(settings, out.write):
        hide(lambda: frozenset({"correct horse battery"}))
        for level, words, fields in lines:
            say(LOG, level, words, **fields)
    return out.all


@pytest.mark.requirement("observability:log-forms")
def test_a_line_for_machines_is_an_object_with_every_field():
    [line] = written(
        LogSettings(format="json"),
        (logging.WARNING, "it\nhappened", {"server_id": "fs", "mcp_effective_servers": ["fs"]}),
    )
    plain = json.loads(line)
    assert plain.pop("timestamp").endswith("Z")
    assert plain == {
        "level": "warning",
        "logger": "bascule.test",
        "message": "it\nhappened",
        "server_id": "fs",
        "mcp_effective_servers": ["fs"],
    }


@pytest.mark.requirement("observability:log-forms")
def test_a_line_for_people_is_one_line():
    fields = {"server_id": "fs", "mcp_effective_servers": ["a", "b"], "caller": "x y\n\x1b[2J"}
    [line] = written(LogSettings(), (logging.INFO, "it\nhappened", fields))
    stamp, level, rest = line.split(" ", 2)
    assert (level, stamp[-1]) == ("INFO", "Z")
    assert rest == (
        r"bascule.test: it\nhappened server_id=fs mcp_effective_servers=a,b"
        r' caller="x y\\n\\x1b[2J"'
    )


@pytest.mark.requirement("observability:log-forms")
@pytest.mark.parametrize(
    ("level", "said"),
    [("debug", 4), ("info", 3), ("warning", 2), ("error", 1), ("off", 0)],
)
def test_a_level_says_from_where_on(level: Any, said: int):
    levels = (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR)
    lines = written(LogSettings(level=level), *((one, "x", {}) for one in levels))
    assert len(lines) == said


@pytest.mark.requirement("observability:log-masked")
@pytest.mark.parametrize("form", ["text", "json"])
def test_no_line_shows_a_secret_wherever_it_stands(form: Any):
    secrets = f"{KEY} {TOKEN} correct horse battery"
    out = Lines()
    with process_log(LogSettings(format=form), out.write):
        hide(lambda: frozenset({"correct horse battery"}))
        say(LOG, logging.WARNING, secrets, a=secrets, b=[secrets], c={secrets: {"d": secrets}})
        LOG.warning("argument %s", secrets)
        logging.getLogger("another.library").warning("they say %s", secrets)
        try:
            raise ValueError(secrets)
        except ValueError:
            LOG.exception("it failed")
    text = out.raw.decode()
    assert "it failed" in text
    assert "ValueError" in text
    for secret in (KEY, TOKEN, "correct horse battery"):
        assert secret not in text


def test_values_of_every_source_are_masked_and_those_that_come_later():
    out, known = Lines(), frozenset({"first horse battery"})
    with process_log(LogSettings(), out.write) as log:
        hide(lambda: frozenset({"other horse battery"}))
        hide(lambda: known)
        assert "horse" not in log.masking("first horse battery, other horse battery")
        known |= {"later horse battery"}
        assert "horse" not in log.masking("first horse battery, later horse battery")


def test_logging_is_as_before_afterwards():
    before = logging.getLogger().handlers, logging.getLogger().level, LOG.getEffectiveLevel()
    written(LogSettings(level="debug"))
    assert before == (
        logging.getLogger().handlers, logging.getLogger().level, LOG.getEffectiveLevel(),
    )  # fmt: skip


@pytest.mark.requirement("observability:log")
def test_lines_that_nobody_reads_stop_nobody_and_are_counted():
    out, read = Lines(), threading.Event()

    def write(line: bytes) -> None:
        read.wait()
        out.write(line)

    with process_log(LogSettings(), write):
        for number in range(20_000):
            say(LOG, logging.INFO, f"line {number}")
        read.set()
    [lost] = [line for line in out.all if "lines of the log were lost" in line]
    assert " WARNING bascule.log: " in lost
    assert 10_000 < len(out.all) < 10_010
