"""Values of env and headers are credentials: in no event, no log, no error, no representation."""

from __future__ import annotations

import logging
import pickle
from pathlib import Path
from typing import Any

import pytest

from bascule.section import (
    McpConnectionError,
    McpServerConfig,
    SseTransport,
    StdioTransport,
    StreamableHttpTransport,
)
from bascule.section.records import Vault, records_of
from bascule.testing import ScriptedHttpServer, ScriptedServer, do
from tests.section.section_servers import beside, config, run, section_of

SECRET = "tR0ub4dor-and-3-horses"
TELLING = ScriptedServer(
    behaviours={
        "env": "env",
        "say": do("echo", text=f"my token is {SECRET}"),
        "error": do("error", text=f"cannot use {SECRET}"),
        "rpc_error": do("rpc_error", message=f"cannot use {SECRET}"),
    }
)


@pytest.mark.requirement("section:credentials-hidden")
@pytest.mark.parametrize("name", ["GITHUB_TOKEN", "SOMETHING"])
def test_a_server_that_tells_its_credentials_is_not_heard(
    name: str, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    caplog.set_level(logging.DEBUG)
    server = TELLING.saved_to(tmp_path / "script")
    with section_of(config(server, env={name: SECRET})) as section:
        for tool in section.tools():
            assert SECRET not in str(tool.run({}, context=section.context()))
        events = section.session.events
        assert len(events) == 4
        assert SECRET not in repr(events)
        assert SECRET not in repr(section)
        assert SECRET not in repr(section.servers)
    assert SECRET not in caplog.text


def test_an_ordinary_value_is_not_masked_in_ordinary_text() -> None:
    server = ScriptedServer(
        behaviours={"say": do("echo", text="files below /srv/work, level warn")}
    )
    with section_of(config(server, env={"DATA": "/srv/work", "LOG": "warn"})) as section:
        assert run(section, "a_say").text == "files below /srv/work, level warn"


@pytest.mark.requirement("section:credentials-hidden")
async def test_a_header_that_comes_back_is_masked() -> None:
    script = ScriptedServer(behaviours={"say": do("echo", text=f"you sent {SECRET}")})
    async with ScriptedHttpServer(server=script) as http:
        headers = {"Authorization": f"Bearer {SECRET}"}
        transport = StreamableHttpTransport(url=http.url, headers=headers)
        async with section_of(McpServerConfig(name="a", transport=transport)) as section:
            result = await beside(run, section, "a_say")
            assert result.success
            assert SECRET not in str(result)
            assert SECRET in http.requests[-1].headers["Authorization"]


@pytest.mark.requirement("section:credentials-hidden")
def test_an_error_shows_no_credential_either(tmp_path: Path) -> None:
    dying = ScriptedServer(at_start=[do("stderr", text=f"bad {SECRET}", then=do("die", code=3))])
    server = dying.saved_to(tmp_path / "script")
    with pytest.raises(McpConnectionError, match="bad") as error:
        section_of(config(server, env={"TOKEN": SECRET})).connect()
    assert SECRET not in str(error.value)
    assert SECRET not in repr(error.value.transport)


@pytest.mark.parametrize(
    "server",
    [
        McpServerConfig(name="a", transport=StdioTransport("x"), env={"TOKEN": SECRET}),
        McpServerConfig(name="a", transport=SseTransport("https://x.example", {"X": SECRET})),
    ],
    ids=["env", "headers"],
)
def test_a_record_holds_no_literal_value(server: Any) -> None:
    vault = Vault()
    (record,) = records_of([server], vault)
    assert SECRET not in repr(record)
    assert SECRET in vault.environ.values()


def test_configurations_can_be_sent_to_another_process() -> None:
    server = config(env={"TOKEN": SECRET})
    assert pickle.loads(pickle.dumps(server)) == server  # noqa: S301 - our own
