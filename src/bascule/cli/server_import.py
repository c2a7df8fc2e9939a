"""``bascule servers import``: a client's ``mcp.json``, once or again and again.

The process translates the file and keeps what servers that exist may be used for. Below:
``records.py`` says what changed, ``next_steps.py`` what is missing. Above: ``servers``.
"""

from __future__ import annotations

import argparse
from typing import Any

from bascule.cli.batch import STANDARD_INPUT, read_input
from bascule.cli.endpoint import ask
from bascule.cli.next_steps import print_steps, steps_for
from bascule.cli.records import say_imported, verb
from bascule.client.registry import Imported, ImportMode, RegistryClient
from bascule.files.scan import read_plain
from bascule.model.json import is_array

_EXAMPLES = """\
  bascule servers import ~/.cursor/mcp.json --preview
  bascule servers import .mcp.json --allow 'read_*' --allow 'search_*'

Reads what Claude Desktop, Claude Code, Cursor and VS Code keep. Such a file says nothing of which
tools may be called, so without --allow nothing may. A server that is there already keeps its
allowed tools and everything else but how it is started or reached.
"""


def add_import_verb(actions: Any) -> None:
    """Add ``import``."""
    parser = verb(
        actions,
        "import",
        "take the servers of a client's mcp.json in",
        import_client,
        examples=_EXAMPLES,
    )
    parser.add_argument("file", metavar="FILE", help="the client's file; - for standard input")
    parser.add_argument(
        "--allow",
        action="append",
        default=[],
        metavar="PATTERN",
        help="tools of each new server that may be called; repeatable",
    )
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--preview", action="store_true", help="say what would change, and stop")
    how.add_argument("--replace", action="store_true", help="also remove the other servers")
    parser.add_argument("--strict", action="store_true", help="refuse what is only a warning")


def import_client(arguments: argparse.Namespace) -> int:
    """Take a client's servers in, in one revision."""
    given = arguments.file == STANDARD_INPUT
    content = read_input(relaxed=True) if given else read_plain(arguments.file, relaxed=True)
    imported, steps = ask(arguments, lambda registry: _imported(registry, content, arguments))
    code = say_imported(arguments, imported)
    print_steps(steps)
    return code


async def _imported(
    registry: RegistryClient, content: Any, arguments: argparse.Namespace
) -> tuple[Imported, list[str]]:
    mode: ImportMode = "preview" if arguments.preview else "upsert"
    if arguments.replace:
        mode = "replace"
    imported = await registry.take_in(content, mode, allow=arguments.allow, strict=arguments.strict)
    if mode == "preview":
        return imported, []
    return imported, await steps_for(registry, _touched(imported), arguments)


def _touched(imported: Imported) -> list[str]:
    servers = [change for change in imported.diff.changes if change.get("kind") == "server"]
    lists = [change.get(name) for change in servers for name in ("added", "changed")]
    return [str(key) for keys in lists if is_array(keys) for key in keys]
