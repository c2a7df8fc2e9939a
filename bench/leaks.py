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
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bascule.policy.leaks import Scanner
from bench.table import Row, at_least, at_most

NAME = "leaks"
# Not the seed of the tests: no rule was ever adjusted to what this one draws.
SEED = 7331
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
    "aws access key": (
        _prefixed(("AK", "IA"), string.ascii_uppercase + "234567", 16),
        "bare",
        True,
    ),
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


def ordinary_files() -> dict[str, list[Path]]:
    """Files that hold no credential, as far as anyone knows."""
    stdlib = Path(sysconfig.get_paths()["stdlib"])
    packages = Path(sysconfig.get_paths()["purelib"])
    return {
        "code": _up_to(ORDINARY_BYTES, stdlib.glob("*.py")),
        "licences": _up_to(LICENCE_BYTES, packages.glob("*.dist-info/**/*LICEN[CS]E*")),
    }


def _up_to(limit: int, paths: Iterator[Path]) -> list[Path]:
    chosen: list[Path] = []
    for path in sorted(path for path in paths if path.is_file()):
        if path.stat().st_size <= limit:
            chosen.append(path)
            limit -= path.stat().st_size
    return chosen


def _text(path: Path) -> str:
    return path.read_text("utf-8", "replace")


def _ours(text: str, secret: str, scanner: Scanner) -> bool:
    at = text.index(secret)
    return any(
        # The public id of a Telegram bot stays: what follows the colon is the secret.
        leak.start <= at + secret.find(":") + 1 and leak.end >= at + len(secret.rstrip("="))
        for leak in scanner.scan(text)
    )


class Theirs:
    """detect-secrets as it scans files, with and without its entropy plugins.

    Files, because its scan of a single string drops the entropy limit on purpose, which would
    count nearly every word of ordinary text as a finding.
    """

    def __init__(self, *, entropy: bool) -> None:
        from detect_secrets.core.plugins.util import get_mapping_from_secret_type_to_class

        names = {kind.__name__ for kind in get_mapping_from_secret_type_to_class().values()}
        kept = sorted(name for name in names if entropy or "HighEntropy" not in name)
        self._plugins = {"plugins_used": [{"name": name} for name in kept]}

    def in_file(self, path: Path) -> list[str]:
        from detect_secrets.core.scan import scan_file
        from detect_secrets.settings import transient_settings

        with transient_settings(self._plugins):
            return [found.secret_value or "" for found in scan_file(str(path))]

    def microseconds(self, text: str) -> float:
        """One scan of a file that is there, with plugins and filters already loaded."""
        from detect_secrets.core.scan import scan_file
        from detect_secrets.settings import transient_settings

        with TemporaryDirectory() as folder, transient_settings(self._plugins):
            path = Path(folder) / "sample.txt"
            path.write_text(text, encoding="utf-8")
            return _microseconds(lambda: list(scan_file(str(path))), 5)

    def findings(self, text: str) -> list[str]:
        with TemporaryDirectory() as folder:
            path = Path(folder) / "sample.txt"
            path.write_text(text, encoding="utf-8")
            return self.in_file(path)

    def finds(self, text: str, secret: str) -> bool:
        return any(found and (found in secret or secret in found) for found in self.findings(text))


def recall(scanner: Scanner, others: dict[str, Theirs]) -> dict[str, Any]:
    sought = list(secrets_in_context(random.Random(SEED)))
    hits = {"ours": Counter(name for name, secret, text in sought if _ours(text, secret, scanner))}
    for who, other in others.items():
        hits[who] = Counter(name for name, secret, text in sought if other.finds(text, secret))
    shared = [name for name, (_, _, known) in FORMATS.items() if known]
    return {
        "per_format": {name: _shares(hits, [name]) for name in FORMATS},
        "all_formats": _shares(hits, list(FORMATS)),
        "formats_both_know": _shares(hits, shared),
    }


def _shares(hits: dict[str, Counter[str]], names: list[str]) -> dict[str, float]:
    total = PER_FORMAT * len(names)
    return {who: round(sum(found[n] for n in names) / total, 4) for who, found in hits.items()}


def false_positives(scanner: Scanner, others: dict[str, Theirs]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for kind, paths in ordinary_files().items():
        megabytes = sum(path.stat().st_size for path in paths) / 1e6
        rows = {"ours": sum(len(scanner.scan(_text(path))) for path in paths)}
        for who, other in others.items():
            rows[who] = sum(len(other.in_file(path)) for path in paths)
        per_mb = {who: round(n / megabytes, 2) for who, n in rows.items()}
        result[kind] = {"megabytes": round(megabytes, 3), **per_mb}
    return result


def _microseconds(action: Callable[[], object], number: int) -> float:
    return round(min(timeit.repeat(action, number=number, repeat=7)) / number * 1e6, 2)


def _hostile() -> list[str]:
    """Text that is all literals, and text that is all findings."""
    parts = ("sk" + "-", "ey" + "J", "token" + "=", "://a:", "MT" + "Aw", "secret" + ": ab1cd2ef ")
    return [(part * 22_000)[:65536] for part in parts]


def speed(scanner: Scanner, theirs: Theirs) -> dict[str, float]:
    code = "".join(_text(path) for path in ordinary_files()["code"])
    # Text that holds no literal at all; real code holds some.
    clear = "lorem ipsum dolor sit amet, consectetur 0123456789\n" * 1400
    accented = clear[:490] + "é漢字"
    return {
        "clear_500_bytes_us": _microseconds(lambda: scanner.scan(clear[:500]), 20_000),
        "accented_500_bytes_us": _microseconds(lambda: scanner.scan(accented), 20_000),
        "clear_64_kib_us": _microseconds(lambda: scanner.scan(clear[:65536]), 50),
        "code_64_kib_us": _microseconds(lambda: scanner.scan(code[:65536]), 50),
        "theirs_500_bytes_us": theirs.microseconds(clear[:500]),
        "hostile_64_kib_us": max(_microseconds(lambda t=t: scanner.scan(t), 3) for t in _hostile()),
    }


def figures() -> dict[str, Any]:
    """All figures of leak scanning, by subject."""
    scanner = Scanner()
    rules = Theirs(entropy=False)
    others = {"their rules": rules, "their rules and entropy": Theirs(entropy=True)}
    return {
        "recall": recall(scanner, others),
        "false positives": false_positives(scanner, others),
        "speed": speed(scanner, rules),
    }


def run() -> list[Row]:
    """The figures as rows; those that the design promises have their goal."""
    found = figures()
    fast, recalled = found["speed"], found["recall"]
    rows = [
        at_most("scan, 500 bytes, nothing found", fast["clear_500_bytes_us"], "µs", 5),
        at_most("scan, 500 bytes not ASCII", fast["accented_500_bytes_us"], "µs", 5),
        at_most("scan, 64 KiB, nothing found", fast["clear_64_kib_us"] / 1000, "ms", 2),
        at_most("scan, 64 KiB of code", fast["code_64_kib_us"] / 1000, "ms", 2),
        Row("scan, 64 KiB made to be slow", fast["hostile_64_kib_us"] / 1000, "ms"),
        Row("detect-secrets, 500 bytes", fast["theirs_500_bytes_us"], "µs"),
    ]
    for kind in ("all_formats", "formats_both_know"):
        words, row = kind.replace("_", " "), recalled[kind]
        rows.append(at_least(f"recall, {words}", row["ours"], "", row["their rules"]))
        rows += [Row(f"recall, {words}, {who}", row[who], "") for who in list(row)[1:]]
    for kind, row in found["false positives"].items():
        name = f"false positives, {kind}"
        rows.append(at_most(name, row["ours"], "per MB", row["their rules"]))
        rows += [Row(f"{name}, {who}", row[who], "per MB") for who in list(row)[2:]]
    return rows
