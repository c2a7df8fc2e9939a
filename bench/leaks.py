"""Leak scanning against the rules of a kept scanner: recall, false positives, speed.

The secrets are synthetic, drawn at random from the published formats when the bench runs, with
their prefixes put together from parts, so that nothing in this file looks like a credential. The
ordinary text is what every machine with Python has: the standard library's source and the
licences of the installed packages.
"""

from __future__ import annotations

import base64
import random
import string
import sysconfig
import timeit
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bascule.policy.leaks import Scanner

SEED = 20261101
PER_FORMAT = 40
ORDINARY_BYTES = 1_000_000
LICENCE_BYTES = 300_000

_ALNUM = string.ascii_letters + string.digits
_URLSAFE = _ALNUM + "_-"
_HEX = "0123456789abcdef"

Make = Callable[[random.Random], str]


def _draw(rng: random.Random, alphabet: str, size: int) -> str:
    return "".join(rng.choices(alphabet, k=size))


def _prefixed(prefix: tuple[str, ...], alphabet: str, size: int) -> Make:
    return lambda rng: "".join(prefix) + _draw(rng, alphabet, size)


def _jwt(rng: random.Random) -> str:
    def part(text: str) -> str:
        return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")

    head = part('{"alg":"HS256","typ":"JWT"}')
    body = part(f'{{"sub":"{rng.randrange(10**9)}","iat":{rng.randrange(10**9)}}}')
    return f"{head}.{body}.{_draw(rng, _URLSAFE, 43)}"


def _private_key(rng: random.Random) -> str:
    lines = "\n".join(_draw(rng, _ALNUM + "+/", 64) for _ in range(12))
    kind = rng.choice(["RSA ", "EC ", "", "OPENSSH "]) + "PRIVATE" + " KEY"
    return f"-----BEGIN {kind}-----\n{lines}\n-----END {kind}-----"


def _discord(rng: random.Random) -> str:
    user = base64.b64encode(str(rng.randrange(10**17, 10**18)).encode()).decode().rstrip("=")
    return f"{user}.{_draw(rng, _URLSAFE, 6)}.{_draw(rng, _URLSAFE, 27)}"


def _slack(rng: random.Random) -> str:
    numbers = f"{rng.randrange(10**10, 10**11)}-{rng.randrange(10**11, 10**12)}"
    return f"xo{'x'}{rng.choice('bp')}-{numbers}-{_draw(rng, _ALNUM, 24)}"


def _telegram(rng: random.Random) -> str:
    return f"{rng.randrange(10**8, 10**10)}:A" + "A" + _draw(rng, _URLSAFE, 33)


def _sendgrid(rng: random.Random) -> str:
    return f"S{'G'}.{_draw(rng, _URLSAFE, 22)}.{_draw(rng, _URLSAFE, 43)}"


def _password(rng: random.Random) -> str:
    while True:
        value = _draw(rng, _ALNUM + "!#%*+", rng.randrange(12, 24))
        if any(c.isdigit() for c in value) and any(c.isalpha() for c in value):
            return value


# format → (how to make one, whether it needs a keyword beside it, known to detect-secrets 1.5)
FORMATS: dict[str, tuple[Make, str, bool]] = {
    "aws access key": (_prefixed(("AK", "IA"), string.ascii_uppercase + "234567", 16), "bare", True),
    "aws secret key": (_prefixed((), _ALNUM + "/+", 40), "aws_secret_access_key", True),
    "github classic": (_prefixed(("gh", "p_"), _ALNUM, 36), "bare", True),
    "github oauth": (_prefixed(("gh", "o_"), _ALNUM, 36), "bare", True),
    "github app": (_prefixed(("gh", "s_"), _ALNUM, 36), "bare", True),
    "github fine-grained": (_prefixed(("github", "_pat_"), _ALNUM + "_", 82), "bare", False),
    "gitlab": (_prefixed(("gl", "pat-"), _URLSAFE, 20), "bare", True),
    "slack": (_slack, "bare", True),
    "stripe": (_prefixed(("sk_", "live_"), _ALNUM, 24), "bare", True),
    "openai legacy": (
        lambda rng: "s" + f"k-{_draw(rng, _ALNUM, 20)}T3Blbk" + f"FJ{_draw(rng, _ALNUM, 20)}",
        "bare",
        True,
    ),
    "openai project": (_prefixed(("sk", "-proj-"), _URLSAFE, 120), "bare", False),
    "anthropic": (_prefixed(("sk", "-ant-", "api03-"), _URLSAFE, 95), "bare", False),
    "google": (_prefixed(("AI", "za"), _URLSAFE, 35), "bare", False),
    "private key": (_private_key, "bare", True),
    "jwt": (_jwt, "bare", True),
    "npm": (_prefixed(("np", "m_"), _ALNUM, 36), "bare", False),
    "pypi": (_prefixed(("py", "pi-AgEIcHlwaS5vcmc"), _URLSAFE, 90), "bare", True),
    "sendgrid": (_sendgrid, "bare", True),
    "twilio": (_prefixed(("S", "K"), _HEX, 32), "bare", True),
    "telegram": (_telegram, "bare", True),
    "discord": (_discord, "bare", True),
    "mailchimp": (lambda rng: f"{_draw(rng, _HEX, 32)}-us{rng.randrange(1, 21)}", "bare", True),
    "azure storage": (lambda rng: _draw(rng, _ALNUM + "+/", 86) + "==", "AccountKey", True),
    "basic auth in a url": (_password, "url", True),
    "bearer header": (_prefixed((), _URLSAFE, 40), "bearer", False),
    "password assigned": (_password, "password", True),
    "api key assigned": (_prefixed((), _HEX, 32), "api_key", True),
}

_BARE = (
    "the key is {0}, keep it\n",
    'const key = "{0}";\n',
    "export SERVICE_CRED={0}\n",
    '{{"value": "{0}", "n": 1}}\n',
    "https://api.example.org/v1?k={0}&page=2\n",
    "{0}\n",
)
_KEYED = ("{1}={0}\n", '{1} = "{0}"\n', '{{"{1}": "{0}"}}\n', "{1}: '{0}'\n")
_URL = ("postgresql://app:{0}@db.example.org/app\n", "git clone https://ci:{0}@git.example.org/a\n")
_BEARER = ("Authorization: Bearer {0}\n", "curl -H 'authorization: bearer {0}' host\n")


def _contexts(kind: str) -> tuple[str, ...]:
    return {"bare": _BARE, "url": _URL, "bearer": _BEARER, "AccountKey": ("{1}={0};\n",)}.get(
        kind, _KEYED
    )


def secrets_in_context(rng: random.Random) -> Iterator[tuple[str, str, str]]:
    """Triples of format, secret, and a text that holds it."""
    for name, (make, kind, _) in FORMATS.items():
        contexts = _contexts(kind)
        for index in range(PER_FORMAT):
            secret = make(rng)
            yield name, secret, contexts[index % len(contexts)].format(secret, kind)


def ordinary_texts() -> dict[str, list[str]]:
    """Text that holds no credential, as far as anyone knows."""
    stdlib = Path(sysconfig.get_paths()["stdlib"])
    packages = Path(sysconfig.get_paths()["purelib"])
    code = _read(sorted(stdlib.glob("*.py")), ORDINARY_BYTES)
    prose = _read(sorted(packages.glob("*.dist-info/**/*LICEN[CS]E*")), LICENCE_BYTES)
    return {"code": code, "licences": prose}


def _read(paths: list[Path], limit: int) -> list[str]:
    texts: list[str] = []
    room = limit
    for path in paths:
        if path.is_file() and path.stat().st_size <= room:
            texts.append(path.read_text("utf-8", "replace"))
            room -= path.stat().st_size
    return texts


def _ours(text: str, secret: str, scanner: Scanner) -> bool:
    at = text.index(secret)
    return any(
        # The public id of a Telegram bot stays: what follows the colon is the secret.
        leak.start <= at + secret.find(":") + 1 and leak.end >= at + len(secret.rstrip("="))
        for leak in scanner.scan(text)
    )


class Theirs:
    """detect-secrets with its default filters, with and without its entropy plugins."""

    def __init__(self, *, entropy: bool) -> None:
        from detect_secrets.core.plugins.util import get_mapping_from_secret_type_to_class

        names = [c.__name__ for c in get_mapping_from_secret_type_to_class().values()]
        kept = [n for n in names if entropy or "HighEntropy" not in n]
        self._plugins = {"plugins_used": [{"name": name} for name in sorted(set(kept))]}

    def findings(self, text: str) -> list[str]:
        from detect_secrets.core.scan import scan_line
        from detect_secrets.settings import transient_settings

        with transient_settings(self._plugins):
            return [
                found.secret_value or ""
                for line in text.splitlines()
                for found in scan_line(line)
            ]

    def finds(self, text: str, secret: str) -> bool:
        return any(f and (f in secret or secret in f) for f in self.findings(text))


def recall(scanner: Scanner, theirs: Theirs) -> dict[str, Any]:
    table: dict[str, list[int]] = {name: [0, 0] for name in FORMATS}
    for name, secret, text in secrets_in_context(random.Random(SEED)):
        table[name][0] += _ours(text, secret, scanner)
        table[name][1] += theirs.finds(text, secret)
    shared = [name for name, (_, _, known) in FORMATS.items() if known]
    return {
        "per_format": {
            name: {"ours": ours / PER_FORMAT, "theirs": other / PER_FORMAT}
            for name, (ours, other) in table.items()
        },
        "all_formats": _share(table, list(FORMATS)),
        "formats_both_know": _share(table, shared),
    }


def _share(table: dict[str, list[int]], names: list[str]) -> dict[str, float]:
    total = PER_FORMAT * len(names)
    return {
        "ours": round(sum(table[n][0] for n in names) / total, 4),
        "theirs": round(sum(table[n][1] for n in names) / total, 4),
    }


def false_positives(scanner: Scanner, others: dict[str, Theirs]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for kind, texts in ordinary_texts().items():
        megabytes = sum(len(text.encode()) for text in texts) / 1e6
        rows = {"ours": sum(len(scanner.scan(text)) for text in texts)}
        for name, other in others.items():
            rows[name] = sum(len(other.findings(text)) for text in texts)
        result[kind] = {
            "megabytes": round(megabytes, 3),
            **{f"{name}_per_mb": round(n / megabytes, 2) for name, n in rows.items()},
        }
    return result


def _microseconds(action: Callable[[], object], number: int) -> float:
    return round(min(timeit.repeat(action, number=number, repeat=7)) / number * 1e6, 2)


def speed(scanner: Scanner, theirs: Theirs) -> dict[str, float]:
    source = next(t for t in ordinary_texts()["code"] if len(t) > 65536 and not scanner.scan(t))
    # Printable ASCII that holds no literal at all, and real code that may hold some.
    clear = "".join(c for c in "lorem ipsum dolor sit amet, consectetur 0123456789\n" * 1400)
    accented = clear[:490] + "é–漢"
    return {
        "clear_500_bytes_us": _microseconds(lambda: scanner.scan(clear[:500]), 20_000),
        "accented_500_bytes_us": _microseconds(lambda: scanner.scan(accented), 20_000),
        "clear_64_kib_us": _microseconds(lambda: scanner.scan(clear[:65536]), 50),
        "code_64_kib_us": _microseconds(lambda: scanner.scan(source[:65536]), 50),
        "theirs_500_bytes_us": _microseconds(lambda: theirs.findings(clear[:500]), 5),
        "hostile_64_kib_us": _microseconds(lambda: scanner.scan(("token" + "=") * 10_900), 3),
    }


def run() -> dict[str, Any]:
    """All figures of leak scanning."""
    scanner = Scanner()
    rules, everything = Theirs(entropy=False), Theirs(entropy=True)
    return {
        "recall": recall(scanner, rules),
        "false_positives": false_positives(
            scanner, {"their_rules": rules, "theirs_with_entropy": everything}
        ),
        "speed": speed(scanner, rules),
    }
