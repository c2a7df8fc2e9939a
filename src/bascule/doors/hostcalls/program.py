"""A module that is ready to run, and why one is not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

from msgspec import Struct
from wasmtime import FuncType, ImportType, InstancePre, Module, WasmtimeError

from bascule.doors.hostcalls.abi import ENTRY
from bascule.doors.hostcalls.host import GuestLimits
from bascule.errors import BasculeError

MAX_MODULE_BYTES: Final = 64 * 1024 * 1024
_MIB: Final = 1024 * 1024
_PAGE: Final = 65_536
_CORE: Final = b"\0asm\x01\0\0\0"
_COMPONENT: Final = b"\0asm\x0d\0\x01\0"
_MEMORY_SECTION: Final = 5
_EXPORT_SECTION: Final = 7
_START_SECTION: Final = 8
#: All of them are looked through when a guest begins, which no clock ends.
_MOST_EXPORTS: Final = 10_000
#: Of what is wrong with a module's imports, so much is told.
_MOST_TOLD: Final = 10
_LONGEST_TOLD: Final = 200
#: What the engine says of a module that needs what guests do not have, and what to do.
_HINTS: Final = {
    "threads must be enabled": "it has a shared memory; build it without threads",
    "memory64 must be enabled": "it has a memory of 64 bits; build it for wasm32",
    "multiple memories": "it has several memories; a guest has one",
    "gc feature": "it uses garbage-collected types, which guests do not have",
    "exception": "it uses WASM exceptions; build it without them (-fno-exceptions)",
}


class BadModule(BasculeError):
    """A module that cannot be run here, and why."""

    code = "bad_module"

    @classmethod
    def of(cls, error: WasmtimeError) -> BadModule:
        """Return what the engine has against a module, with a hint where there is one."""
        why = cause(error)
        hint = next((hint for words, hint in _HINTS.items() if words in why), None)
        return cls(f"the module is not valid: {why}" if hint is None else f"the module: {hint}")


class Imports(Protocol):
    """What modules may import."""

    @property
    def signatures(self) -> Mapping[tuple[str, str], str]:
        """Return the signature of each, by module and name; see ``abi``."""
        ...

    def instances(self, module: Module) -> InstancePre:
        """Return a module with its imports."""
        ...


class Program(Struct, frozen=True, eq=False):
    """A module that is compiled and has all that it imports."""

    instances: InstancePre
    memory_bytes: int
    #: What its imports call is gone no sooner than the program.
    imports: Imports

    def check_memory(self, limits: GuestLimits) -> None:
        """Raise BadModule if it begins with more memory than it may have."""
        if self.memory_bytes <= limits.memory_bytes:
            return
        needed, most = -(-self.memory_bytes // _MIB), limits.memory_bytes / _MIB
        raise BadModule(
            f"the module begins with {needed} MiB of memory, and may have {most:g}: "
            f"run it with --memory {needed} or more (on a node: node.guest_memory_mb), or build it "
            "with a smaller stack (zig and clang: -Wl,-z,stack-size=65536)"
        )


def check_form(content: bytes) -> None:
    """Raise BadModule for what is no core module: the engine would also take text."""
    if len(content) > MAX_MODULE_BYTES:
        most = MAX_MODULE_BYTES // _MIB
        raise BadModule(f"the module has {len(content):,} bytes; at most {most} MiB are taken")
    if content.startswith(_COMPONENT):
        raise BadModule("this is a component; build a core module (target wasm32-wasip1)")
    if not content.startswith(_CORE):
        raise BadModule("this is no WASM module: it does not begin with \\0asm, version 1")


def program_of(module: Module, content: bytes, imports: Imports) -> Program:
    """Return a valid module with its imports; raise BadModule if there is one that is not."""
    sections = _sections(content)
    _check_exports(sections.get(_EXPORT_SECTION))
    _check_imports(module, imports.signatures)
    _check_entry(module, starts_itself=_START_SECTION in sections)
    memory_bytes = _memory_bytes(sections.get(_MEMORY_SECTION))
    return Program(imports.instances(module), memory_bytes, imports)


def cause(error: WasmtimeError) -> str:
    """Return what the engine found in the end: the last line of what it says."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else "it does not say why"


def _check_imports(module: Module, signatures: Mapping[tuple[str, str], str]) -> None:
    imports = [(one, signatures.get((one.module, one.name or ""))) for one in module.imports]
    missing = [f"{one.module}.{one.name}" for one, letters in imports if letters is None]
    if missing:
        raise BadModule(f"the module imports what there is not: {_told(missing, ', ')}")
    wrong = [
        f"{one.module}.{one.name} as {found}, which is {due}"
        for one, letters in imports
        if (found := _shape(one)) != (due := _described(letters or ""))
    ]
    if wrong:
        raise BadModule(f"the module imports {_told(wrong, '; ')}")


def _told(found: list[str], between: str) -> str:
    told = [one if len(one) <= _LONGEST_TOLD else f"{one[:_LONGEST_TOLD]}…" for one in found]
    more = len(told) - _MOST_TOLD
    return between.join(told[:_MOST_TOLD]) + (f" and {more} more" if more > 0 else "")


def _described(letters: str) -> str:
    kinds = [{"i": "i32", "l": "i64"}.get(letter, "") for letter in letters]
    return f"({', '.join(kinds[:-1])}) -> ({kinds[-1]})"


def _shape(one: ImportType) -> str:
    kind = one.type
    if not isinstance(kind, FuncType):
        return "no function"
    params, results = (", ".join(map(str, types)) for types in (kind.params, kind.results))
    return f"({params}) -> ({results})"


def _check_exports(section: bytes | None) -> None:
    count = _number(section, 0)[0] if section else 0
    if count > _MOST_EXPORTS:
        raise BadModule(f"the module exports {count:,} names; at most {_MOST_EXPORTS:,} are taken")


def _check_entry(module: Module, *, starts_itself: bool) -> None:
    entry = next((one.type for one in module.exports if one.name == ENTRY), None)
    if isinstance(entry, FuncType):
        if entry.params:
            raise BadModule(f"the module's {ENTRY} takes parameters; it is called with none")
    elif not starts_itself:
        raise BadModule(f"the module exports no function {ENTRY}: build a command, not a library")


def _sections(content: bytes) -> dict[int, bytes]:
    """Return the sections of a valid module by their numbers."""
    found: dict[int, bytes] = {}
    at = len(_CORE)
    while at < len(content):
        number = content[at]
        size, at = _number(content, at + 1)
        if number in {_MEMORY_SECTION, _EXPORT_SECTION, _START_SECTION}:
            found[number] = content[at : at + size]
        at += size
    return found


def _memory_bytes(section: bytes | None) -> int:
    """Return how much memory a module begins with; it has one or none."""
    if not section or not section[0]:
        return 0
    return _number(section, 2)[0] * _PAGE  # after the count and the flags


def _number(content: bytes, at: int) -> tuple[int, int]:
    """Return an unsigned LEB128 number, and where it ends."""
    found = shift = 0
    while True:
        byte = content[at]
        at += 1
        found |= (byte & 0x7F) << shift
        if byte < 0x80:
            return found, at
        shift += 7
