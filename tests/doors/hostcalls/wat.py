"""Pieces of WAT: a guest that makes calls one after another and writes down what each answered.

ran = await run_wat(guest(call("spear_epoll_create"), call("spear_epoll_close", "$0")))
ran.answers     # what each call returned; ``$0`` is what the first one did
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct

from bascule.doors.hostcalls import wasi
from bascule.doors.hostcalls.abi import ABSENT, IMPORTS

#: Where answers are written down; what lies 16 bytes or more below is the guest's to use.
ANSWERS = 40_960
_SIZES = {"i": "i32", "l": "i64"}


class Call(Struct, frozen=True):
    """One call, and its numbers; ``$n`` stands for what the n-th call answered."""

    name: str
    numbers: tuple[int | str, ...]


def call(name: str, *numbers: int | str) -> Call:
    return Call(name, numbers)


def guest(
    *calls: Call,
    data: Mapping[int, bytes | int] | None = None,
    shown: tuple[int, int] = (0, 0),
    more: str = "",
    pages: int = 1,
) -> str:
    """Return a guest that makes these calls, then writes some of its memory to stdout.

    ``data`` is what lies where: bytes, or a number of four bytes. ``shown`` is a place and a
    length.
    """
    return f"""(module
  {"".join(sorted({import_of(one.name) for one in calls}))}
  (import "{wasi.MODULE}" "fd_write" (func $tell (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") {pages})
  {"".join(_data(data or {}))}
  {more}
  (func (export "_start")
    {" ".join(_made(at, one) for at, one in enumerate(calls))}
    {_told(2, ANSWERS, 8 * len(calls))}
    {_told(1, *shown)}))
"""


def _signature(name: str) -> tuple[str, str]:
    if name.startswith("wasi."):
        return wasi.MODULE, wasi.IMPORTS[name.removeprefix("wasi.")]
    return "bascule", {**IMPORTS, **ABSENT}[name]


def import_of(name: str) -> str:
    module, letters = _signature(name)
    params = " ".join(_SIZES[letter] for letter in letters[:-1])
    result = "" if letters.endswith("-") else f"(result {_SIZES[letters[-1]]})"
    short = name.removeprefix("wasi.")
    return f'(import "{module}" "{short}" (func ${name} (param {params}) {result}))\n  '


def _data(data: Mapping[int, bytes | int]) -> Iterable[str]:
    for at, value in data.items():
        content = value if isinstance(value, bytes) else value.to_bytes(4, "little")
        text = "".join(f"\\{byte:02x}" for byte in content)
        yield f'(data (i32.const {at}) "{text}")\n  '


def _made(at: int, one: Call) -> str:
    letters = _signature(one.name)[1]
    numbers = " ".join(
        _number(number, letter) for number, letter in zip(one.numbers, letters, strict=False)
    )
    made = f"(call ${one.name} {numbers})"
    place = ANSWERS + 8 * at
    if letters.endswith("-"):
        return made
    kept = made if letters.endswith("l") else f"(i64.extend_i32_s {made})"
    return f"(i64.store (i32.const {place}) {kept})"


def _number(number: int | str, letter: str) -> str:
    if isinstance(number, str):
        return f"(i32.load (i32.const {ANSWERS + 8 * int(number[1:])}))"
    return f"({_SIZES[letter]}.const {number})"


def _told(fd: int, start: int, length: int) -> str:
    vector = ANSWERS - 16
    return f"""
    (i32.store (i32.const {vector}) (i32.const {start}))
    (i32.store (i32.const {vector + 4}) (i32.const {length}))
    (drop (call $tell (i32.const {fd}) (i32.const {vector}) (i32.const 1)
      (i32.const {vector + 8})))"""
