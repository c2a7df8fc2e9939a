"""From a record to what is started: environment, references, and the node's own rules."""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest

from bascule.errors import LaunchDenied, ServerUnavailable
from bascule.model.secret_use import SecretUse, server_use
from bascule.model.server import Http, ServerRecord, Stdio
from bascule.node.pool.launch import PrivateHomes, Resolved, resolve_launch
from bascule.outbound.network_variables import credentials_in
from bascule.outbound.references import Reading
from bascule.outbound.rules import NodeRules

PATH = os.environ["PATH"]
ANYTHING = NodeRules()
TOKEN = "glpat-0123456789abcdef"  # pragma: allowlist secret


class Vault:
    """Secrets in a dictionary."""

    def __init__(self, secrets: Mapping[str, str]) -> None:
        self._secrets = secrets

    async def secret(self, name: str, use: SecretUse) -> str:
        del use
        return self._secrets[name]


@pytest.fixture
async def homes() -> AsyncIterator[PrivateHomes]:
    async with PrivateHomes() as homes:
        yield homes


class Node:
    """A node with variables, rules and perhaps secrets, asked to start one server."""

    def __init__(self, home: Path, **variables: str) -> None:
        self.home = home
        self.environ = {"PATH": PATH} | variables
        self.rules = ANYTHING
        self.vault: Vault | None = None

    async def resolve(self, stdio: Stdio) -> Resolved:
        record = ServerRecord(server_id="fs", transport="stdio", stdio=stdio)
        return await resolve_launch(
            record, Reading(self.rules, self.environ, self.vault, server_use(record)), self.home
        )

    async def env(self, **env: str) -> Mapping[str, str]:
        return (await self.resolve(Stdio(command="env", env=env))).launch.env

    async def refusal(self, stdio: Stdio) -> ServerUnavailable:
        with pytest.raises(ServerUnavailable) as caught:
            await self.resolve(stdio)
        return caught.value


@pytest.fixture
def node(homes: PrivateHomes) -> Node:
    return Node(homes.path, GITLAB_TOKEN=TOKEN, HOME="/home/ann", SHELL="/bin/sh")


def started(resolved: Resolved) -> dict[str, str]:
    """Start it for real; it is ``env``, which prints what it was given."""
    launch = resolved.launch
    done = subprocess.run(
        launch.argv,
        env=dict(launch.env),
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=10,
        check=True,
    )
    return dict(line.split("=", 1) for line in done.stdout.splitlines())


def program(folder: Path, name: str) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text("#!/bin/sh\n", encoding="utf-8")
    path.chmod(0o755)
    return path


# The environment


@pytest.mark.requirement("process:environment-empty", "transport:stdio:env")
async def test_a_server_gets_path_private_folders_a_locale_and_what_its_record_gives(node: Node):
    stdio = Stdio(command="env", env={"LOG": "warn"}, env_from=("GITLAB_TOKEN",))
    assert started(await node.resolve(stdio)) == {
        "PATH": PATH,
        "HOME": str(node.home / "fs" / "home"),
        "TMPDIR": str(node.home / "fs" / "tmp"),
        "LANG": "C.UTF-8",
        "LC_ALL": "C.UTF-8",
        "LOG": "warn",
        "GITLAB_TOKEN": TOKEN,
    }


WAYS_OUT = {
    "SSL_CERT_FILE": "/etc/ssl/corporate.pem",
    "SSL_CERT_DIR": "/etc/ssl/corporate",
    "NODE_EXTRA_CA_CERTS": "/etc/ssl/extra.pem",
    "REQUESTS_CA_BUNDLE": "/etc/ssl/bundle.pem",
    "HTTP_PROXY": "http://proxy.example:3128",
    "HTTPS_PROXY": "http://proxy.example:3128",
    "NO_PROXY": "localhost,.example",
    "http_proxy": "http://proxy.example:3129",
    "https_proxy": "http://proxy.example:3129",
    "no_proxy": "127.0.0.1",
}


@pytest.mark.requirement("process:environment:outward")
async def test_a_server_gets_the_nodes_certificates_and_proxies(node: Node):
    node.environ |= WAYS_OUT
    resolved = await node.resolve(Stdio(command="env"))
    given = started(resolved)
    assert {name: given.get(name) for name in WAYS_OUT} == WAYS_OUT
    assert resolved.known_values == frozenset()  # paths and plain addresses are no secrets
    assert not resolved.reference_values


@pytest.mark.requirement("process:environment:outward")
async def test_the_nodes_rules_may_keep_certificates_and_proxies_back(node: Node):
    node.environ |= WAYS_OUT
    node.rules = NodeRules(executables=("env",), variables=())
    assert set(WAYS_OUT).isdisjoint(await node.env())
    node.rules = NodeRules(executables=("env",), variables=("SSL_*", "NO_PROXY"))
    assert {name for name in await node.env() if name in WAYS_OUT} == {
        "SSL_CERT_FILE",
        "SSL_CERT_DIR",
        "NO_PROXY",
    }


async def test_a_record_has_the_last_word_on_proxies(node: Node):
    node.environ |= WAYS_OUT
    env = await node.env(HTTPS_PROXY="", HTTP_PROXY="http://other.example:1")
    assert (env["HTTPS_PROXY"], env["HTTP_PROXY"]) == ("", "http://other.example:1")


@pytest.mark.requirement("process:environment:outward")
@pytest.mark.parametrize("written", ["node", "record"])
async def test_a_proxys_credentials_reach_the_server_and_are_known(node: Node, written: str):
    address = "http://ann:p%40ssw0rd-of-ann@proxy.example:3128/"  # pragma: allowlist secret
    if written == "node":
        node.environ["https_proxy"] = address
        resolved = await node.resolve(Stdio(command="env"))
    else:
        resolved = await node.resolve(Stdio(command="env", env={"https_proxy": address}))
    assert started(resolved)["https_proxy"] == address
    password = "p%40ssw0rd-of-ann"  # pragma: allowlist secret
    assert {address, password, "p@ssw0rd-of-ann"} <= resolved.known_values
    assert resolved.known_values <= resolved.reference_values


@pytest.mark.parametrize(
    ("value", "hidden"),
    [
        ("http://proxy:3128", set[str]()),
        ("proxy:3128", set[str]()),
        ("localhost,.example", set[str]()),
        ("http://tok3n-alone@proxy:1", {"tok3n-alone"}),
        ("ann:secret-word@proxy:3128", {"secret-word", "ann:secret-word"}),
        ("socks5h://ann:with@sign@proxy:1", {"with@sign"}),
    ],
)
def test_credentials_are_found_in_every_way_to_write_a_proxy(value: str, hidden: set[str]):
    found = credentials_in(value)
    assert hidden <= found
    assert bool(found) == bool(hidden)


async def test_the_private_folders_are_its_owners_alone(node: Node):
    resolved = await node.resolve(Stdio(command="env"))
    for folder in (node.home, resolved.folder, resolved.folder / "home", resolved.folder / "tmp"):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert resolved.folder == node.home / "fs"


async def test_a_record_may_set_home_tmpdir_and_path_itself(node: Node):
    env = await node.env(HOME="/srv/a", TMPDIR="/srv/b", PATH=f"/opt/bin:{PATH}")
    assert (env["HOME"], env["TMPDIR"]) == ("/srv/a", "/srv/b")
    assert env["PATH"] == f"/opt/bin:{PATH}"


@pytest.mark.parametrize("name", ["LANG", "LC_ALL", "LC_CTYPE"])
async def test_a_locale_that_a_record_chooses_is_not_outranked(node: Node, name: str):
    env = await node.env(**{name: "de_DE.UTF-8"})
    assert env[name] == "de_DE.UTF-8"
    assert env.get("LC_ALL", "de_DE.UTF-8") == "de_DE.UTF-8"


async def test_a_node_without_path_gives_none(homes: PrivateHomes):
    node = Node(homes.path)
    del node.environ["PATH"]
    assert "PATH" not in (await node.resolve(Stdio(command="/bin/sh"))).launch.env


async def test_the_working_directory_is_as_written(node: Node):
    resolved = await node.resolve(Stdio(command="env", cwd="~/${GITLAB_TOKEN}"))
    assert resolved.launch.cwd == "~/${GITLAB_TOKEN}"


async def test_the_program_is_started_by_the_path_that_was_found(node: Node, tmp_path: Path):
    tool = program(tmp_path / "bin", "my-server")
    resolved = await node.resolve(
        Stdio(command="my-server", args=("-v",), env={"PATH": str(tool.parent)})
    )
    assert resolved.launch.argv == (str(tool), "-v")


# References


async def test_references_in_command_args_and_env_are_resolved(node: Node):
    node.environ |= {"TOOL": "env", "A": "1", "B": "2"}
    stdio = Stdio(command="${TOOL}", args=("${ENV:A}-${B}$$",), env={"X": "<${A}${ENV:B}>"})
    resolved = await node.resolve(stdio)
    assert Path(resolved.launch.argv[0]).name == "env"
    assert resolved.launch.argv[1:] == ("1-2$",)
    assert resolved.launch.env["X"] == "<12>"


@pytest.mark.requirement("references:env:default-proceeds")
async def test_a_missing_variable_with_a_default_starts_with_the_default(node: Node):
    stdio = Stdio(command="env", env={"LEVEL": "${ENV:LEVEL:-info}", "EMPTY": "${NOPE:-}"})
    environment = started(await node.resolve(stdio))
    assert environment["LEVEL"] == "info"
    assert environment["EMPTY"] == ""


@pytest.mark.parametrize(
    ("stdio", "field"),
    [
        (Stdio(command="env", env={"A": "x${ENV:NOPE}"}), "stdio.env.A"),
        (Stdio(command="env", env_from=("NOPE",)), "stdio.env_from"),
        (Stdio(command="${NOPE}"), "stdio.command"),
        (Stdio(command="env", args=("a", "${NOPE}")), "stdio.args[1]"),
    ],
)
async def test_a_missing_variable_is_named_with_its_field(node: Node, stdio: Stdio, field: str):
    refusal = await node.refusal(stdio)
    assert refusal.reason == "env_missing"
    assert str(refusal) == f"{field}: the variable NOPE is not set on this node"


async def test_a_changed_variable_takes_effect_at_the_next_resolution(node: Node):
    assert (await node.env(T="${GITLAB_TOKEN}"))["T"] == TOKEN
    node.environ["GITLAB_TOKEN"] = "changed"
    assert (await node.env(T="${GITLAB_TOKEN}"))["T"] == "changed"


async def test_a_malformed_reference_names_its_field(node: Node):
    refusal = await node.refusal(Stdio(command="env", args=("${",)))
    assert str(refusal).startswith("stdio.args[0]: '${' without '}'")


async def test_a_secret_comes_from_the_resolver(node: Node):
    node.vault = Vault({"gitlab/token": "from the vault"})
    assert (await node.env(T="secret://gitlab/token"))["T"] == "from the vault"


async def test_a_secret_that_is_not_there_fails_with_its_name(node: Node):
    stdio = Stdio(command="env", env={"T": "secret://nope"})
    assert "this node has no secret store" in str(await node.refusal(stdio))
    node.vault = Vault({})
    refusal = await node.refusal(stdio)
    assert refusal.reason == "env_missing"
    assert str(refusal) == "stdio.env.T: there is no secret named 'nope'"


@pytest.mark.requirement("references:file:read")
@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
async def test_a_file_gives_its_text_without_one_line_end(node: Node, tmp_path: Path, end: str):
    file = tmp_path / "token"
    file.write_bytes(f"line one\n\ntokén\n{end}".encode())
    expected = "line one\n\ntokén" + ("\n" if end else "")
    assert (await node.env(T=f"file://{file}"))["T"] == expected


async def test_a_file_is_bounded_regular_text_at_an_absolute_path(node: Node, tmp_path: Path):
    (tmp_path / "large").write_bytes(b"x" * 65_537)
    (tmp_path / "full").write_bytes(b"x" * 65_536)
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    os.mkfifo(tmp_path / "pipe")
    expected = {
        f"{tmp_path}/large": "is over 65536 bytes",
        f"{tmp_path}/binary": "is not UTF-8 text",
        f"{tmp_path}/pipe": "is no regular file",
        "/dev/zero": "is no regular file",
        f"{tmp_path}": "is no regular file",
        f"{tmp_path}/nope": "cannot be read: No such file or directory",
        f"{tmp_path}/\0": "cannot be read: not a usable path",
        "relative": "must name an absolute path",
    }
    for path, words in expected.items():
        refusal = await node.refusal(Stdio(command="env", env={"T": f"file://{path}"}))
        assert str(refusal).startswith(f"stdio.env.T: file://{path} ")
        assert words in str(refusal)
    assert len((await node.env(T=f"file://{tmp_path}/full"))["T"]) == 65_536


@pytest.mark.parametrize(
    ("stdio", "field"),
    [
        (Stdio(command="env", args=("a\0b",)), "stdio.args[0]"),
        (Stdio(command="en\0v"), "stdio.command"),
        (Stdio(command="env", cwd="/\0"), "stdio.cwd"),
        (Stdio(command="env", env={"T": "a\0b"}), "stdio.env.T"),
        (Stdio(command="env", env={"T": "secret://nul"}), "stdio.env.T"),
    ],
)
async def test_a_nul_character_is_refused_with_its_field(node: Node, stdio: Stdio, field: str):
    node.vault = Vault({"nul": "a\0b"})
    assert str(await node.refusal(stdio)).startswith(f"{field}: holds a NUL character")


# What must not be shown


async def test_values_from_references_are_known_and_short_and_public_ones_are_not(
    node: Node, tmp_path: Path
):
    (tmp_path / "key").write_text("key from a file\n", encoding="utf-8")
    node.vault = Vault({"s": "secret from the vault"})
    node.environ |= {"SHORT": "abc", "REGION": "north"}
    env = {
        "A": "Bearer ${GITLAB_TOKEN}",
        "B": "secret://s",
        "C": f"file://{tmp_path}/key",
        "D": "${SHORT}",
        "E": "${ENV:NOPE:-written in the record}",
        "F": "literal",
    }
    resolved = await node.resolve(Stdio(command="env", args=("${HOME}", "${REGION}"), env=env))
    credentials = {TOKEN, "secret from the vault", "key from a file"}
    assert resolved.known_values == credentials
    assert resolved.reference_values == credentials | {"north"}


async def test_a_credential_that_is_written_out_is_known_by_the_name_of_its_place(node: Node):
    env = {"GITHUB_TOKEN": "written-out-token", "API_KEY": "Basic dXNlcjpwYXNz", "LOG": "verbose"}
    resolved = await node.resolve(Stdio(command="env", env=env))
    shown = {"written-out-token", "Basic dXNlcjpwYXNz", "dXNlcjpwYXNz"}
    assert resolved.known_values == shown


async def test_no_value_from_a_reference_stands_in_the_representation(node: Node):
    resolved = await node.resolve(Stdio(command="env", env_from=("GITLAB_TOKEN",)))
    assert TOKEN not in repr(resolved)
    assert TOKEN not in str(resolved)


# The node's rules


@pytest.mark.requirement("references:allowed-variables")
async def test_a_variable_outside_the_list_is_refused_with_the_setting_to_add(node: Node):
    node.rules = NodeRules(variables=("REGION",))
    refusal = await node.refusal(Stdio(command="env", env_from=("GITLAB_TOKEN",)))
    assert isinstance(refusal, LaunchDenied)
    assert refusal.reason == "launch_denied"
    assert str(refusal) == (
        "stdio.env_from: this node does not let records read the variable GITLAB_TOKEN; "
        'add "GITLAB_TOKEN" to [node] variables, or to BASCULE_NODE_VARIABLES'
    )


async def test_listed_variables_may_be_read_by_name_and_by_pattern(node: Node):
    for variables in (("GITLAB_TOKEN",), ("GITLAB_*",), ("?ITLAB_TOKEN",), ("*",), None):
        node.rules = NodeRules(variables=variables, executables=("*",) if variables else None)
        assert (await node.env(T="${GITLAB_TOKEN}"))["T"] == TOKEN
    for variables in ((), ("GITLAB",), ("gitlab_*",), ("",), ("?GITLAB_TOKEN",)):
        node.rules = NodeRules(variables=variables)
        assert isinstance(await node.refusal(Stdio(command="${GITLAB_TOKEN}")), LaunchDenied)


async def test_a_default_does_not_hide_that_a_variable_may_not_be_read(node: Node):
    node.rules = NodeRules(variables=())
    stdio = Stdio(command="env", env={"A": "${ENV:NOPE:-default}"})
    assert isinstance(await node.refusal(stdio), LaunchDenied)


async def test_path_may_always_be_extended(node: Node):
    assert (await node.env(PATH="/opt/bin:${PATH}"))["PATH"] == f"/opt/bin:{PATH}"
    node.rules = NodeRules(variables=("PATH",), executables=("env",))
    with pytest.raises(LaunchDenied, match="does not start"):  # its name may be another's now
        await node.env(PATH="/opt/bin:${PATH}")
    node.rules = NodeRules(variables=("PATH",), executables=("*",))
    assert (await node.env(PATH="/opt/bin:${PATH}"))["PATH"] == f"/opt/bin:{PATH}"


@pytest.fixture
def real(tmp_path: Path) -> Path:
    """A folder by the path that has no links in it."""
    return tmp_path.resolve()


async def test_a_file_outside_the_list_is_refused_even_behind_a_link(node: Node, real: Path):
    (real / "allowed").mkdir()
    (real / "allowed" / "key").write_text("fine", encoding="utf-8")
    (real / "outside").write_text("not fine", encoding="utf-8")
    (real / "allowed" / "link").symlink_to(real / "outside")
    node.rules = NodeRules(files=(f"{real}/allowed/*",), executables=("*",))
    assert (await node.env(T=f"file://{real}/allowed/key"))["T"] == "fine"
    for path in ("allowed/link", "allowed/../outside", "outside"):
        refusal = await node.refusal(Stdio(command="env", env={"T": f"file://{real}/{path}"}))
        assert isinstance(refusal, LaunchDenied)
        assert f'add "{real}/outside" to [node] files' in str(refusal)


@pytest.mark.requirement("transport:executables")
async def test_a_program_outside_the_list_is_refused_with_the_setting_to_add(
    node: Node, tmp_path: Path
):
    tool = program(tmp_path / "tools", "server")
    node.rules = NodeRules(executables=("env",))
    refusal = await node.refusal(Stdio(command=str(tool)))
    assert isinstance(refusal, LaunchDenied)
    assert str(refusal) == (
        f"stdio.command: this node does not start {tool}; "
        f'add "{tool}" to [node] executables, or to BASCULE_NODE_EXECUTABLES'
    )
    assert not (node.home / "fs").exists()
    assert started(await node.resolve(Stdio(command="env")))


async def test_listed_programs_may_be_started_by_path_by_name_and_by_pattern(
    node: Node, tmp_path: Path
):
    tool = program(tmp_path / "bin", "server")
    node.environ["PATH"] = f"{tool.parent}:{PATH}"
    by_name, by_path = Stdio(command="server"), Stdio(command=str(tool))
    for executables in ((str(tool),), (f"{tool.parent}/*",), ("*",), None):
        node.rules = NodeRules(executables=executables)
        for stdio in (by_name, by_path):
            assert (await node.resolve(stdio)).launch.argv == (str(tool),)
    for executables in (("server",), ("serv*",)):
        node.rules = NodeRules(executables=executables)
        assert (await node.resolve(by_name)).launch.argv == (str(tool),)
    for executables in ((), ("serve",), ("/usr/bin/*",)):
        node.rules = NodeRules(executables=executables)
        assert isinstance(await node.refusal(by_name), LaunchDenied)


async def test_an_allowed_name_does_not_allow_another_program_of_that_name(
    node: Node, tmp_path: Path
):
    evil = program(tmp_path / "evil", "env")
    node.rules = NodeRules(executables=("env", "*nv", "/usr/bin/*"))
    for stdio in (
        Stdio(command="env", env={"PATH": str(evil.parent)}),
        Stdio(command=str(evil)),
        Stdio(command="./env", cwd=str(evil.parent)),
        Stdio(command=f"/usr/bin/../..{evil}"),
    ):
        assert isinstance(await node.refusal(stdio), LaunchDenied)


@pytest.mark.parametrize("name", ["LD_PRELOAD", "LD_AUDIT", "DYLD_INSERT_LIBRARIES"])
async def test_a_list_of_programs_is_not_bypassed_through_the_loader(node: Node, name: str):
    stdio = Stdio(command="env", env={name: "/tmp/evil.so"})
    assert (await node.resolve(stdio)).launch.env[name] == "/tmp/evil.so"
    node.rules = NodeRules(executables=("*",))
    refusal = await node.refusal(stdio)
    assert isinstance(refusal, LaunchDenied)
    assert str(refusal).startswith(f"stdio.env: {name} would load other code")


# What cannot be started


async def test_a_command_that_is_nowhere_names_the_path_searched(node: Node):
    refusal = await node.refusal(Stdio(command="no-such-server"))
    assert "command not found: 'no-such-server'" in str(refusal)
    assert refusal.reason == "unavailable"


async def test_a_launcher_that_is_nowhere_says_what_to_install(node: Node):
    node.environ["PATH"] = "/nowhere"
    assert "'uvx'; it comes with uv (pip install uv)" in str(
        await node.refusal(Stdio(command="uvx"))
    )
    assert "'npx'; it comes with Node.js" in str(await node.refusal(Stdio(command="npx")))


async def test_a_command_that_comes_to_nothing_is_refused(node: Node):
    assert "stdio.command: empty" in str(await node.refusal(Stdio(command="${NOPE:-}")))


async def test_a_remote_server_is_not_started(homes: PrivateHomes):
    record = ServerRecord(
        server_id="web", transport="streamable_http", http=Http(url="https://example.org/mcp")
    )
    with pytest.raises(ServerUnavailable, match=r"web has no \[stdio\] table"):
        await resolve_launch(record, Reading(ANYTHING, {}, None, server_use(record)), homes.path)


async def test_a_private_folder_that_cannot_be_made_fails_the_server(node: Node, tmp_path: Path):
    node.home = tmp_path / "file"
    node.home.write_text("in the way", encoding="utf-8")
    assert "no private folder" in str(await node.refusal(Stdio(command="env")))


# The private folders


async def test_a_servers_folder_goes_alone_and_everything_goes_with_the_owner(tmp_path: Path):
    outside = tmp_path / "outside"
    outside.mkdir(mode=0o755)
    async with PrivateHomes() as homes:
        assert stat.S_IMODE(homes.path.stat().st_mode) == 0o700
        for name in ("fs", "git"):
            (homes.path / name / "home").mkdir(parents=True)
            (homes.path / name / "home" / "link").symlink_to(outside)
        await homes.remove(homes.path / "fs")
        await homes.remove(homes.path / "fs")
        assert [each.name for each in homes.path.iterdir()] == ["git"]
    assert not homes.path.exists()
    assert stat.S_IMODE(outside.stat().st_mode) == 0o755


async def test_folders_that_a_server_closed_to_writing_go_too():
    async with PrivateHomes() as homes:
        cache = homes.path / "go" / "home" / "pkg"
        cache.mkdir(parents=True)
        (cache / "mod").write_text("x", encoding="utf-8")
        for folder in (cache, cache.parent, cache.parent.parent):
            folder.chmod(0o500)
    assert not homes.path.exists()
