"""The page of the web admin: built from ``web/``, checked, and compared with what is committed.

``python -m checks.web`` compares; with ``--write`` (``make web``) the build takes the place of
the committed one. Node is that of the development lock, packages are those of ``web/``'s lock.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

from checks import npm
from checks.tree import ROOT, report

WEB = ROOT / "web"
CACHE = ROOT / ".cache" / "web"
MODULES = CACHE / "node_modules"
PAGE = ROOT / "src" / "bascule" / "control" / "web" / "page"
OPENAPI = ROOT / "src" / "bascule" / "asgi" / "openapi.json"
SCHEMA = WEB / "src" / "api" / "schema.ts"
MANIFEST = "manifest.json"
ENTRY = "index.html"

#: What a browser fetches before the first screen, compressed.
FIRST_LOAD_BYTES = 120_000
#: Screens that are heavy and not everybody's: fetched when they are opened.
LATER = ("Playground.js", "Audit.js")
_SECONDS = 240.0
_WIDTH = 400  # of a line that a tool says: TypeScript writes whole types into one

#: Names that look like addresses and are never fetched: of XML, and of Svelte's errors.
_NAMES = re.compile(
    rb"http://www\.w3\.org/(?:1999/xhtml|1999/xlink|2000/svg|1998/Math/MathML|"
    rb"XML/1998/namespace)|https://svelte\.dev/e/"
)
#: This machine, and hosts that exist in examples alone.
_HERE = re.compile(rb"https?://(?:127\.0\.0\.1|localhost|(?:[\w-]+\.)*example(?:\.com)?)(?=[:/]|$)")
_ADDRESS = re.compile(rb"(?:https?:|wss?:|[\"'(`])//[a-zA-Z0-9\[][^\s\"'`)]*")
#: What the entry fetches.
_NAMED = re.compile(rb"(?:src|href)=\"\./([^\"]+)\"")
_FORBIDDEN = {
    "{@html}": re.compile(r"\{@html\b"),
    "a style attribute": re.compile(r"\sstyle=[\"'{]"),
}


class Failed(Exception):
    """A tool of the build said no; the message is what it said."""


def main(arguments: Sequence[str]) -> int:
    """Build the page and compare it with the committed one, or write it there."""
    found = [*source_complaints(WEB), *lock_complaints(WEB / "package-lock.json")]
    try:
        install()
        write_types()
        with ThreadPoolExecutor(1) as beside, TemporaryDirectory() as folder:
            checking = beside.submit(type_complaints)
            built, manifest = build(Path(folder))
            found += checking.result()
    except (Failed, subprocess.SubprocessError) as error:
        return report([*found, str(error)])
    found += [*weight_complaints(built, manifest), *address_complaints(built)]
    if "--write" not in arguments:
        return report([*found, *differences(built, read_files(PAGE))])
    for name in write(built, PAGE):
        print(f"wrote {name}")
    return report(found)


def install() -> None:
    """Have the packages of the lock below ``.cache``, where the tools find them from ``web/``."""
    npm.install(WEB, CACHE, MODULES / "vite" / "bin" / "vite.js")
    link = WEB / "node_modules"
    if not link.is_symlink():
        shutil.rmtree(link, ignore_errors=True)
        link.symlink_to(os.path.relpath(MODULES, WEB))


def build(folder: Path) -> tuple[dict[str, bytes], bytes]:
    """Build the page; give its files, and Vite's manifest of them."""
    options = ("--emptyOutDir", "--logLevel", "warn", "--manifest", MANIFEST)
    said = tool("vite/bin/vite.js", "build", "--outDir", str(folder), *options)
    if said.strip():  # a warning
        raise Failed(f"vite:\n{said}")
    built = read_files(folder)
    return built, built.pop(MANIFEST)


def type_complaints() -> list[str]:
    """Check types and markup; warnings, those on accessibility among them, are errors."""
    options = ("--incremental", "--fail-on-warnings", "--no-color", "--tsconfig", "tsconfig.json")
    try:
        tool("svelte-check/bin/svelte-check", *options)
    except Failed as failed:
        return [str(failed)]
    return []


def write_types() -> None:
    """Make the page's types from the description of the API; the same ones stay untouched."""
    # A field with a default need not be given; answers say themselves which fields they have.
    options = ("--root-types", "--root-types-no-schema-prefix", "--default-non-nullable=false")
    with TemporaryDirectory() as folder:
        made = Path(folder) / "schema.ts"
        tool("openapi-typescript/bin/cli.js", str(OPENAPI), "-o", str(made), *options)
        if not SCHEMA.exists() or SCHEMA.read_bytes() != made.read_bytes():
            shutil.copyfile(made, SCHEMA)


def tool(script: str, *words: str) -> str:
    """Let Node run a tool of the lock in ``web/``, and return what it says."""
    done = subprocess.run(
        [npm.NODE, MODULES / script, *words],
        cwd=WEB,
        check=False,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        timeout=_SECONDS,
    )
    if done.returncode != 0:
        said = "\n".join(line[:_WIDTH] for line in done.stdout.splitlines())
        raise Failed(f"{script.partition('/')[0]}:\n{said}")
    return done.stdout


def read_files(folder: Path) -> dict[str, bytes]:
    """Read a folder of files, by name."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def write(built: Mapping[str, bytes], page: Path) -> list[str]:
    """Put a build in the place of the old one, and name what changed."""
    before = read_files(page)
    changed = [name for name in built.keys() | before.keys() if built.get(name) != before.get(name)]
    for name in changed:
        path = page / name
        if name in built:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(built[name])
        else:
            path.unlink()
    return sorted(changed)


def differences(built: Mapping[str, bytes], committed: Mapping[str, bytes]) -> list[str]:
    """Name the files that are not what the source gives."""
    names = sorted(built.keys() | committed.keys())
    return [
        f"{PAGE.relative_to(ROOT)}/{name}: not what web/ gives: run `make web`"
        for name in names
        if built.get(name) != committed.get(name)
    ]


def first_load(built: Mapping[str, bytes], manifest: bytes, screen: str = ENTRY) -> set[str]:
    """Name the files that a browser fetches to show a screen: all that entry and screen need.

    Styles are of one file, which only the entry itself names.
    """
    chunks = json.loads(manifest)
    needed, seen, waiting = {ENTRY, *_named(built[ENTRY])}, set[str](), [ENTRY, screen]
    while waiting:
        seen.add(name := waiting.pop())
        chunk = chunks[name]
        needed |= {chunk["file"], *chunk.get("css", ()), *chunk.get("assets", ())}
        waiting += set(chunk.get("imports", ())) - seen
    return needed


def _named(entry: bytes) -> Iterator[str]:
    return (name.decode() for name in _NAMED.findall(entry))


def weight_complaints(built: Mapping[str, bytes], manifest: bytes) -> Iterator[str]:
    """Weigh what the heaviest screen needs that may be the first, and look what comes later."""
    later = {name: one["file"] for name, one in json.loads(manifest).items() if _is_screen(one)}
    screens = (ENTRY, *(name for name, file in later.items() if file not in LATER))
    weights = {name: len(gzip.compress(content, mtime=0)) for name, content in built.items()}
    loads = [first_load(built, manifest, screen) for screen in screens]
    weight, needed = max((sum(weights[name] for name in load), sorted(load)) for load in loads)
    if weight > FIRST_LOAD_BYTES:
        yield (
            f"the first load is {weight} bytes gzipped, at most {FIRST_LOAD_BYTES}: "
            f"load later what is not needed at once ({', '.join(needed)})"
        )
    for name in LATER:
        if name not in built or name in loads[0]:
            yield f"{name}: must be a file of its own that is fetched when it is opened"


def _is_screen(chunk: Mapping[str, object]) -> bool:
    return chunk.get("isDynamicEntry") is True


def address_complaints(built: Mapping[str, bytes]) -> Iterator[str]:
    """Name addresses of other hosts in the build: the page asks nobody but its own server."""
    for name, content in built.items():
        for found in _ADDRESS.findall(_NAMES.sub(b"", content)):
            if not _HERE.match(found):
                yield f"{name}: an address of another host: {found.decode('utf-8', 'replace')[:80]}"


def source_complaints(web: Path) -> Iterator[str]:
    """Name markup that the page's content policy refuses, or that would show text as markup."""
    for path in sorted((web / "src").rglob("*.svelte")):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            for what, pattern in _FORBIDDEN.items():
                if pattern.search(line):
                    yield f"{path.relative_to(web.parent)}:{number}: {what}: take it out"


def lock_complaints(lock: Path) -> Iterator[str]:
    """Name the packages of a lock that have an address, or no digest."""
    packages = json.loads(lock.read_bytes())["packages"]
    for name, package in packages.items():
        if name and ("resolved" in package or "integrity" not in package):
            yield f"{lock.name}: {name}: wants an integrity and no address (.npmrc says how)"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
