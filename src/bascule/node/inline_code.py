"""Code that stands in a command line: ``python3 -c``, ``bash -c``, ``node --eval`` and their like.

Who lists an interpreter means the programs it runs, not whatever a record writes after it. Known
are interpreters, by how they read their options, and programs that start others. What is not known
is not judged: a list of whole lines contains a writer, a list of programs closes these ways out.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct

from bascule.model.code_variables import loads_code

# Scripts that are no files of their own: what a process was given (its input, its variables, its
# own command line are files below these folders), and what an address leads to.
_GIVEN = re.compile(r"-|(?:/+|(?:\.\./)+)(?:dev|proc)(?:/.*)?", re.DOTALL)
_ADDRESS = re.compile(r"(?:data|blob|https?):.*", re.DOTALL | re.IGNORECASE)
# ``python@3.12`` and builds for one machine are the interpreter that they are named after.
_BUILD = re.compile(r"@.*|-(?:dbg|debug|\w+-linux-\w+|intel64|arm64)")
_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)\+?=")
_SHORTEST_BEGINNING = 4


class Interpreter(Struct, frozen=True, kw_only=True):
    """How a program reads its options, up to the script or module that it runs.

    ``short`` and ``long`` are options that bring code, ``valued`` and ``long_valued`` those that
    take a value. Of the letters in a cluster, ``attached`` ones have the rest of it for a value and
    never the next argument, ``digits`` ones have a number before the next letter, ``later`` ones
    have the next argument while the cluster goes on. ``words`` are first arguments after which code
    follows, ``commands`` those after which options begin again. Of a ``text`` one the first
    argument is code itself, unless one of the ``files`` options reads it from a file. A ``loose``
    one has more options with values than are known here.
    """

    short: str = ""
    valued: str = ""
    attached: str = ""
    digits: str = ""
    later: str = ""
    long: str = ""
    long_valued: str = ""
    words: str = ""
    commands: str = ""
    files: str = ""
    text: bool = False
    loose: bool = False
    modules: bool = False


_SHELL = Interpreter(short="cs", later="oO", long="--command --init-command --rcfile --init-file")
_NODE = Interpreter(
    short="epri",
    valued="C",
    long=(
        "--eval --print --require --import --loader --experimental-loader --preload --interactive "
        "--env-file --env-file-if-exists --experimental-config-file "
        "--experimental-default-config-file --snapshot-blob --openssl-config --run --inspect "
        "--inspect-brk --inspect-wait --inspect-port"
    ),
    words="eval repl exec",
    commands="run x test task serve bench",
    loose=True,
)
_AWK = Interpreter(
    short="eilE", valued="vFf", long="--source --include --load --exec", files="f", text=True
)
_FAMILIES: Mapping[str, Interpreter] = {
    r"(?:i?python|pypy|pythonw|bpython|ptpython|jython|graalpy|micropython)[\d.]*[a-z]{0,2}": (
        Interpreter(
            short="c", valued="WXQ", long_valued="--check-hash-based-pycs --jit", modules=True
        )
    ),
    r"r?bash|sh|dash|r?zsh|[a-z]*ksh(?:93)?|ash|t?csh|yash|posh|hush|xonsh|elvish": _SHELL,
    r"r?bash-?[\d.]+|zsh-?[\d.]+": _SHELL,
    r"fish": Interpreter(short="cC", valued="dDfop", long="--command --init-command"),
    r"nu(?:shell)?": Interpreter(
        short="ce", long="--commands --execute --config --env-config --plugins --plugin-config"
    ),
    r"(?:node|nodejs|iojs|electron|bun|deno)[\d.]*|tsx|ts-node[a-z-]*": _NODE,
    r"perl[\d.]*": Interpreter(short="eEMmd", valued="I", attached="iFCDVx", digits="0l"),
    r"j?ruby[\d.]*|truffleruby": Interpreter(
        short="er", valued="ICEX", attached="iFx", digits="0TW", long="--eval"
    ),
    r"php(?:-cli|-cgi)?[\d.]*": Interpreter(
        short="rBREdacz", valued="fFStTbg", long="--run --process-code --process-begin --define"
    ),
    r"(?:lua|luajit|texlua)[\d.]*": Interpreter(short="eli"),
    r"julia[\d.]*": Interpreter(
        short="eEL", valued="CpgtHJ", attached="O", long="--eval --print --load"
    ),
    r"R|Rscript|littler|r": Interpreter(short="e", long="--eval --file"),
    r"osascript|groovy|scala|swift|ghc|runghc|bb": Interpreter(short="e"),
    r"elixir|iex": Interpreter(short="er", long="--eval --rpc-eval --require"),
    r"erl|escript": Interpreter(short="ers"),
    r"guile[\d.]*|expect": Interpreter(short="c"),
    r"racket|sbcl|ecl|octave[\w-]*|emacs[\w-]*": Interpreter(
        short="elf", long="--eval --load --execute --funcall"
    ),
    r"pwsh|powershell": Interpreter(short="ceCEsS", loose=True),
    r"[gmn]?awk|busybox-awk": _AWK,
    r"g?sed": Interpreter(short="e", valued="fl", long="--expression", files="f", text=True),
}
_KNOWN = [(re.compile(names), family) for names, family in _FAMILIES.items()]

# Programs that start others, and their options that take a command line or code as one argument.
_STARTERS: Mapping[str, str] = {
    "env": "-S --split-string",
    "npx": "-c --call --node-options --node-arg --script-shell --shell",
    "npm": "-c --call --node-options --script-shell --shell",
    "pnpm": "-c --shell-mode --node-options --script-shell",
    "yarn": "-c --node-options --script-shell",
    "java": "-XX:OnError -XX:OnOutOfMemoryError",
    "mise": "-c --command",
    "nix": "-c --command --expr -E",
    "su": "-c --command",
    "runuser": "-c --command",
    "script": "-c --command",
    "flock": "-c --command",
    "git": "-c --config-env --exec-path --upload-pack --receive-pack",
    "find": "-exec -execdir -ok -okdir",
    "tar": "-I --use-compress-program --to-command --checkpoint-action --rsh-command",
    "make": "--eval",
    "gdb": "-ex -iex --eval-command --init-eval-command -x",
    "vim": "-c --cmd -S",
    "nvim": "-c --cmd -S",
    "sqlite3": "-cmd",
    "psql": "-c --command",
    "mysql": "-e --execute",
    "nc": "-e -c --exec --sh-exec",
    "ncat": "-e -c --exec --sh-exec",
    "rsync": "-e --rsh --rsync-path",
    "ssh": "-o",
    "watch": "",
    "parallel": "",
}
# Of npx, options without a value; after another one a word may be its value.
_NPX_SWITCHES = frozenset(
    {"--yes", "--no", "--no-install", "--quiet", "--silent", "--offline", "--prefer-offline"}
)
_NPX_VALUED = frozenset({"-p", "-w", "-n"})
# Modules that take code from the line, run another script or module, or fetch what they run.
_CODE_MODULES = frozenset(
    {
        "timeit", "code", "pdb", "idlelib", "asyncio", "IPython", "bpython", "ptpython", "_pyrepl",
        "cProfile", "profile", "trace", "runpy", "bdb", "pip", "pipx", "uv",
    }
)  # fmt: skip


def inline_code(names: Iterable[str], args: Sequence[str]) -> list[int]:
    """Return which arguments bring code, or a variable that loads some, into the program.

    ``names`` are all names that the program goes by: as it was called, and as it is really called.
    """
    for name in names:
        family = _family_of(name)
        if family is not None:
            return sorted(set(_code(family, args, 0)))
    found = {index for name in names for index in _started(name, args)}
    return sorted(found | set(_carried(args)))


def _family_of(path: str) -> Interpreter | None:
    name = _BUILD.sub("", path.rpartition("/")[2].removesuffix(".exe"))
    return next((family for names, family in _KNOWN if names.fullmatch(name)), None)


def _started(path: str, args: Sequence[str]) -> Iterator[int]:
    """Yield the options of a program that starts others, up to where these begin."""
    name = path.rpartition("/")[2]
    if name not in _STARTERS:
        return
    options = _STARTERS[name].split()
    for index, arg in enumerate(args):
        if arg == "--" or (
            name == "npx" and not arg.startswith("-") and not _is_value(args, index)
        ):
            return
        if any(_is_option(arg, option) for option in options):
            yield index


def _is_value(args: Sequence[str], index: int) -> bool:
    """Say whether a word may be the value of the option before it."""
    before = args[index - 1] if index else ""
    if before in _NPX_VALUED:
        return True
    return before.startswith("--") and "=" not in before and before not in _NPX_SWITCHES


def _is_option(arg: str, option: str) -> bool:
    """Say whether an argument is an option, with its value attached, in a cluster or shortened."""
    name = arg.partition("=")[0]
    if option.startswith("--"):
        return len(name) >= _SHORTEST_BEGINNING and option.startswith(name)
    if len(option) > len("-x"):
        return name == option
    return arg.startswith(option) or (
        re.fullmatch(r"-[A-Za-z]+", arg) is not None and option[1] in arg
    )


def _carried(args: Sequence[str]) -> Iterator[int]:
    """Yield what is inline for an interpreter that stands among the arguments of another program.

    Variables that are set on the way to it count as well (``env PYTHONPATH=…``).
    """
    for index, arg in enumerate(args):
        assigned = _ASSIGNMENT.match(arg)
        if assigned is not None and loads_code(assigned[1]):
            yield index
        family = _family_of(arg) if arg else None
        if family is not None:
            yield from _code(family, args, index + 1)
        if _names_code_module(args, index):
            yield index


def _names_code_module(args: Sequence[str], index: int) -> bool:
    """Say whether an argument is ``-m`` or ``--module`` with a module that takes code."""
    option, equals, value = args[index].partition("=")
    if option not in ("-m", "--module"):
        return False
    module = value if equals else "".join(args[index + 1 : index + 2])
    return module.partition(".")[0] in _CODE_MODULES


def _is_given(script: str) -> bool:
    """Say whether a script is what the process was given, or what an address leads to."""
    path = posixpath.normpath(script)
    return _GIVEN.fullmatch(path) is not None or _ADDRESS.fullmatch(script) is not None


def _code(family: Interpreter, args: Sequence[str], start: int) -> Iterator[int]:
    """Yield the arguments that bring code, up to the script that an interpreter runs."""
    index, from_file, before = start, False, ""
    while index < len(args):
        arg = args[index]
        if _is_given(arg):
            yield index
            return
        if arg == "--" or not arg.startswith(("-", "+")):
            if arg != "--" and family.loose and _may_take(before):
                if arg in family.words.split():
                    yield index
                index, before = index + 1, ""
                continue
            yield from _script(family, args, index + (arg == "--"), from_file=from_file)
            return
        if arg.startswith("--"):
            found, step = _long(family, arg)
        elif family.modules and (module := _module(family, args, index)) is not None:
            yield from _of_module(args, *module)
            return
        else:
            found, step = _short(family, arg[1:])
        if found:
            yield index
        from_file = from_file or (arg[1:2] in family.files and bool(family.files))
        before, index = arg, index + step


def _may_take(before: str) -> bool:
    """Say whether an option may take the next argument as its value, for all that is known."""
    switches = ("--no-", "--enable-", "--experimental-", "--trace-", "--harmony", "--preserve-")
    return before.startswith("-") and "=" not in before and not before.startswith(switches)


def _script(
    family: Interpreter, args: Sequence[str], index: int, *, from_file: bool
) -> Iterator[int]:
    if index >= len(args):
        return
    word = args[index]
    text = family.text and not from_file
    if text or _is_given(word) or word in family.words.split():
        yield index
    elif word in family.commands.split():  # deno run -, bun run -
        yield from _code(family, args, index + 1)


def _long(family: Interpreter, arg: str) -> tuple[bool, int]:
    """Say whether a long option brings code, and how many arguments it is."""
    name, equals, _ = arg.replace("_", "-").partition("=")
    brings = len(name) >= _SHORTEST_BEGINNING and any(
        option == name or (option.startswith(name) and not family.loose)
        for option in family.long.split()
    )
    valued = brings or name in family.long_valued.split()
    return brings, 2 if valued and not equals else 1


def _short(family: Interpreter, letters: str) -> tuple[bool, int]:
    """Say whether a cluster of short options brings code, and how many arguments it is."""
    step, left = 1, letters
    while left:
        letter, left = left[0], left[1:]
        if letter in family.short:
            return True, step if left else step + 1
        if letter in family.valued:
            return False, step if left else step + 1
        if letter in family.attached or (letter in family.digits and left.startswith(":")):
            return False, step
        if letter in family.digits:
            left = left.lstrip("0123456789")
        step += letter in family.later
    return False, step


def _module(family: Interpreter, args: Sequence[str], index: int) -> tuple[str, int] | None:
    """Return the module of ``-m``, alone or in a cluster, and where its arguments begin."""
    for place, letter in enumerate(args[index][1:], start=1):
        if letter in family.short + family.valued:
            return None
        if letter == "m":
            attached = args[index][place + 1 :]
            rest = args[index + 1 : index + 2]
            return (attached, index + 1) if attached else ("".join(rest), index + 2)
    return None


def _of_module(args: Sequence[str], module: str, start: int) -> Iterator[int]:
    if module.partition(".")[0] in _CODE_MODULES:
        yield start - 1
    yield from (index for index in range(start, len(args)) if _names_code_module(args, index))
