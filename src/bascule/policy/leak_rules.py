"""What a leaked credential looks like: one row per kind.

A row has the literals that must be there before any regular expression runs, and a pattern that is
tried exactly where a literal was found. Patterns are linear by construction: every quantifier is
bounded, the long ones are possessive, and a run that can be long has a left boundary that excludes
its own alphabet, so that no character is read twice for the same rule.

Rows are ordered by how specific they are: where two findings overlap, the earlier row names it.
"""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Iterable
from typing import NamedTuple

from bascule.policy.leak_keys import (
    entropy,
    has_placeholder,
    placeholder,
    secret_value,
    sensitive_key,
)

# A judge reads this much of a value and no more, so that its cost is bounded too.
_JUDGED = 256

Judge = Callable[[re.Match[str]], bool]


class Rule(NamedTuple):
    """One kind of credential.

    ``group`` is the part to mask when the pattern has context, ``behind`` how many characters
    before it belong to it too, ``reach`` how far from its literal a match can extend.
    """

    id: str
    literals: tuple[str, ...]
    pattern: re.Pattern[str]
    group: int = 0
    judge: Judge | None = None
    reach: int = 1000
    behind: int = 0


_HUMPS = re.compile(r"[a-z](?=[A-Z])")


def _digits(value: str) -> int:
    return sum(character.isdigit() for character in value)


# What follows is the digest of a file, as lists of packages have it.
_CHECKSUM = re.compile(r"(?:sha1|sha256|sha384|sha512|md5)[=:-]$")


def _random_looking(match: re.Match[str]) -> bool:
    value = match[match.re.groups][:_JUDGED]
    if not _mixed(value) or entropy(value) < 3.2 or placeholder(value):
        return False
    return not _CHECKSUM.search(match.string, max(0, match.start() - 8), match.start())


def _mixed(value: str) -> bool:
    """Digits, or capitals within words: what words joined by hyphens do not have."""
    return _digits(value) >= 2 or len(_HUMPS.findall(value)) >= 4


def _not_a_sample(match: re.Match[str]) -> bool:
    looks_made = _digits(match[0]) >= 1 or _mixed(match[0])
    return looks_made and not has_placeholder(match[0])


def _password_in_url(match: re.Match[str]) -> bool:
    return not placeholder(match[1])


# Names are read this far to the left of the word that was found in them.
_MAX_NAME = 64
_IN_NAMES = string.ascii_letters + string.digits + "_.-"
# The name of a resource has parts that look like assignments: ``arn:…:secret:name``.
_RESOURCE = re.compile(r"arn:[A-Za-z0-9_:./*-]{0,120}:$")


def _assigned_secret(match: re.Match[str]) -> bool:
    start = match.start()
    before = match.string[max(0, start - 2 * _MAX_NAME) : start]
    near = before[-_MAX_NAME:]
    key = near[len(near.rstrip(_IN_NAMES)) :] + match[1]
    if not sensitive_key(key) or not secret_value(key, match[3], quoted=bool(match[2])):
        return False
    return "arn:" not in before or not _RESOURCE.search(before)


# A token may follow an escaped character of its surroundings (``%3D``, ``\n``), which ends in a
# letter and is still a boundary.
_EDGE = r"(?:(?<![A-Za-z0-9_-])|(?<=%[0-9A-Fa-f]{2})|(?<=\\[nrt]))"
_GAP = r"\\{0,2}[\"']?[\])]?[ \t]{0,4}(?:=>|:=|[=:])[ \t]{0,4}\\{0,2}"
_KEYWORDS = (
    "passw(?:or)?d|passphrase|secret|api[_-]?key|access[_-]?key|private[_-]?key|token|credential"
)


def _cased(*words: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(form for w in words for form in (w, w.upper(), w.title())))


def _row(id_: str, literals: str, pattern: str, judge: Judge | None = None) -> Rule:
    return Rule(id_, tuple(literals.split()), re.compile(pattern), judge=judge)


def _discord_starts() -> tuple[str, ...]:
    # A bot token opens with the base64 of a decimal number: of the 16 million four-character
    # openings there are only these 900, which makes a literal out of a format without a prefix.
    first = ("MT", "Mj", "Mz", "ND", "NT", "Nj", "Nz", "OD", "OT")
    return tuple(a + b + c for a in first for b in "AEIMQUYcgk" for c in "wxyz012345")


def _private_key() -> Rule:
    line_break = r"(?:\s|\\[nr]){0,8}+"
    headers = rf"(?:[A-Za-z-]{{1,40}}: [^\n\\]{{0,100}}{line_break}){{0,8}}"
    body = r"[A-Za-z0-9+/=]{32}[A-Za-z0-9+/=\s\\]{0,16384}+"
    pattern = (
        r"-----BEGIN (?:[A-Z0-9]{1,20} ){0,4}PRIVATE KEY(?: BLOCK)?-----"
        rf"{line_break}{headers}{body}(?:-----END [A-Z0-9 ]{{0,60}}-----)?"
    )
    return Rule("private-key", ("-----BEGIN ",), re.compile(pattern), reach=20000)


def _assignment() -> Rule:
    literals = _cased("passw", "passphrase", "secret", "api_key", "apikey", "api-key", "access_key")
    literals += _cased("access-key", "private_key", "token", "credential")
    literals += ("apiKey", "ApiKey", "accessKey", "AccessKey", "privateKey", "Api-Key")
    pattern = (
        rf"((?i:{_KEYWORDS})[A-Za-z0-9_-]{{0,40}}+){_GAP}"
        r"([\"']?)([^\s\"'\\,;&<>(){}\[\]`]{8,256}+)(?![(\[])"
    )
    return Rule("assignment", literals, re.compile(pattern), 3, _assigned_secret)


def _authorization() -> Rule:
    pattern = (
        rf"(?<![A-Za-z])(?i:authorization){_GAP}[\"']?"
        r"(?i:(?:bearer|basic|token|bot|apikey)[ ]{1,4})?([A-Za-z0-9._~+/=-]{8,4096}+)(?!\()"
    )
    literals = _cased("authorization")
    return Rule("authorization", literals, re.compile(pattern), 1, _random_looking, 5000)


def _bearer() -> Rule:
    pattern = r"(?i:bearer)[ ]{1,4}([A-Za-z0-9._~+/=-]{16,4096}+)"
    return Rule("bearer", _cased("bearer "), re.compile(pattern), 1, _random_looking, 5000)


def _basic_auth() -> Rule:
    pattern = r"://[^\s/?#:@\"'<>\\]{0,128}+:([^\s/?@\"'<>\\]{3,256}+)@"
    return Rule("basic-auth", ("://",), re.compile(pattern), 1, _password_in_url)


def _telegram() -> Rule:
    pattern = r"(?<=[0-9]{8}):(AA[A-Za-z0-9_-]{33})(?![A-Za-z0-9_-])"
    return Rule("telegram-bot-token", (":AA",), re.compile(pattern), 1)


def _aws_secret() -> Rule:
    literals = (
        "secret_access_key",
        "SECRET_ACCESS_KEY",
        "ecretAccessKey",
        "aws_secret",
        "AWS_SECRET",
    )
    pattern = (
        r"(?i:secret_?access_?key|ecretaccesskey|aws_secret[a-z_]{0,16}+)"
        rf"{_GAP}[\"']?([A-Za-z0-9/+]{{40}})(?![A-Za-z0-9/+])"
    )
    return Rule("aws-secret-key", literals, re.compile(pattern), 1, _random_looking)


def _jwt() -> Rule:
    part = r"[A-Za-z0-9_-]"
    pattern = rf"{_EDGE}eyJ{part}{{8,2048}}+\.eyJ{part}{{4,8192}}+\.{part}{{0,2048}}+"
    return Rule("jwt", ("eyJ",), re.compile(pattern), reach=13000)


def _discord() -> Rule:
    pattern = (
        rf"{_EDGE}[MNO][A-Za-z0-9]{{22,27}}+\.[A-Za-z0-9_-]{{6}}\.[A-Za-z0-9_-]{{27,40}}"
        r"(?![A-Za-z0-9_-])"
    )
    return Rule("discord-bot-token", _discord_starts(), re.compile(pattern))


def _twilio() -> Rule:
    literals = tuple("SK" + digit for digit in "0123456789abcdef")
    pattern = r"(?<![A-Za-z0-9])SK[0-9a-f]{32}(?![A-Za-z0-9])"
    return Rule("twilio-api-key", literals, re.compile(pattern))


_WORD = r"[A-Za-z0-9_-]"
_AWS_ID = r"(?<![A-Za-z0-9])(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}(?<!EXAMPLE)(?![A-Za-z0-9])"
_GITHUB = r"gh(?:[pour]_[A-Za-z0-9]{36,255}+|s_[A-Za-z0-9_.-]{36,800}+)"
_GITLAB = r"gl(?:pat|dt|rt|cbt|ptt|ft|soat)-[A-Za-z0-9_.-]{20,300}+"
_SLACK_HOOK = r"hooks\.slack\.com/services/T[A-Z0-9]{6,16}/B[A-Z0-9]{6,16}/[A-Za-z0-9]{16,40}"
_DISCORD_HOOK = r"(?:/api/webhooks/)[0-9]{15,21}/([A-Za-z0-9_-]{60,90}+)"
_OPENAI = rf"{_EDGE}sk-(?!ant-){_WORD}{{32,300}}+"
_SENDGRID = rf"{_EDGE}SG\.{_WORD}{{16,32}}+\.{_WORD}{{32,64}}"
_GCP_ID = r"private_key_id\\{0,2}[\"']\s{0,4}:\s{0,4}\\{0,2}[\"']([0-9a-f]{40})"
_AZURE = r"AccountKey=([A-Za-z0-9+/]{86}==)"
_MAILCHIMP = r"(?<=[0-9a-f]{32})-us[0-9]{1,2}(?![0-9A-Za-z])"

RULES: tuple[Rule, ...] = (
    _private_key(),
    Rule("gcp-key-id", ("private_key_id",), re.compile(_GCP_ID), 1),
    _row("aws-access-key", "AKIA ASIA ABIA ACCA", _AWS_ID),
    _aws_secret(),
    _row("github-token", "ghp_ gho_ ghu_ ghr_ ghs_", _GITHUB),
    _row("github-token", "github_pat_", r"github_pat_[A-Za-z0-9_]{22,255}+"),
    _row("gitlab-token", "glpat- gldt- glrt- glcbt- glptt- glft- glsoat-", _GITLAB),
    _row(
        "slack-token",
        "xoxa- xoxb- xoxe- xoxo- xoxp- xoxr- xoxs- xoxe.",
        r"xox[abeoprs](?:\.xox[bp])?-[A-Za-z0-9-]{10,250}+",
        _not_a_sample,
    ),
    _row("slack-token", "xapp-", r"xapp-[0-9]-[A-Za-z0-9-]{20,250}+"),
    _row("slack-webhook", "hooks.slack.com/services/", _SLACK_HOOK),
    _row(
        "stripe-key",
        "sk_live_ rk_live_ sk_test_ rk_test_",
        r"[sr]k_(?:live|test)_[A-Za-z0-9]{16,255}+",
        _not_a_sample,
    ),
    _row("stripe-key", "whsec_", r"whsec_[A-Za-z0-9+/=]{24,128}+"),
    _row("anthropic-key", "sk-ant-", rf"sk-ant-{_WORD}{{20,300}}+", _not_a_sample),
    _row("openai-key", "sk-", _OPENAI, _random_looking),
    _row("google-key", "AIza", rf"AIza{_WORD}{{35}}(?!{_WORD})"),
    _row("google-oauth", "GOCSPX-", rf"GOCSPX-{_WORD}{{28}}"),
    _row("google-oauth", "ya29.", rf"{_EDGE}ya29\.{_WORD}{{20,900}}+"),
    _jwt(),
    _row("npm-token", "npm_", r"npm_[A-Za-z0-9]{36}(?![A-Za-z0-9])"),
    _row("pypi-token", "pypi-Ag", rf"pypi-Ag{_WORD}{{48,512}}+"),
    _row("sendgrid-key", "SG.", _SENDGRID),
    _twilio(),
    _telegram(),
    _discord(),
    Rule("discord-webhook", ("/api/webhooks/",), re.compile(_DISCORD_HOOK), 1),
    Rule("azure-storage-key", ("AccountKey=",), re.compile(_AZURE), 1),
    Rule(
        "mailchimp-key",
        tuple(f"-us{digit}" for digit in "123456789"),
        re.compile(_MAILCHIMP),
        behind=32,
    ),
    _row("square-token", "sq0csp- sq0atp-", rf"sq0(?:csp-{_WORD}{{43}}|atp-{_WORD}{{22}})"),
    _row("shopify-token", "shpat_ shpca_ shppa_ shpss_", r"shp(?:at|ca|pa|ss)_[0-9a-fA-F]{32}"),
    _row("huggingface-token", "hf_", r"(?<![A-Za-z0-9_])hf_[A-Za-z]{34}(?![A-Za-z0-9_])"),
    _row("digitalocean-token", "dop_v1_ doo_v1_ dor_v1_", r"do[por]_v1_[0-9a-f]{64}"),
    _row("databricks-token", "dapi", r"(?<![A-Za-z0-9])dapi[0-9a-f]{32}(?![A-Za-z0-9])"),
    _row("docker-token", "dckr_pat_", rf"dckr_pat_{_WORD}{{24,64}}+"),
    _row("vault-token", "hvs. hvb.", rf"{_EDGE}hv[sb]\.{_WORD}{{24,300}}+"),
    _row("age-secret-key", "AGE-SECRET-KEY-1", r"AGE-SECRET-KEY-1[0-9A-Z]{58}"),
    _row("grafana-token", "glsa_ glc_", r"gl(?:sa|c)_[A-Za-z0-9+/=_]{32,400}+", _not_a_sample),
    _authorization(),
    _bearer(),
    _basic_auth(),
    _assignment(),
)


def literal_table(rules: Iterable[Rule]) -> list[tuple[str, int]]:
    """Every literal with the index of its rule; one literal may open several rules."""
    return [(text, index) for index, rule in enumerate(rules) for text in rule.literals]
