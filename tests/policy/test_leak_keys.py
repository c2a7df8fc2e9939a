"""Names and values: which of them speak of a credential, in text and in JSON alike."""

from __future__ import annotations

import json
import os
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest

from bascule.policy.leak_keys import secret_value, sensitive_key
from bascule.policy.leaks import Scanner, mask, mask_json

ORDINARY = {
    "tokenizer": "cl100k_base2",
    "api_key_id": "a1b2c3d4e5f6",
    "accessKeyId": "Lt5tAbCdEf1234",
    "credentials": "base64v2",
    "token_type": "Bearer2x9",
    "secretName": "prod-db-creds2",
    "secret": "acme-frontend-tls2",
    "PublicKeyToken": "b77a5c561934e089",
    "token_endpoint_auth_method": "client_secret_post2",
    "eos_token": "end151645x2",
    "nextPageToken": "CAUQ" + "AA1b2C3d4E5f6",
    "csrf_token": "x1y2z3a4b5c6",
    "password_policy": "min8upper1digit1",
    "passwordField": "user_pw_field2x",
    "tokens_per_minute": "90k2x3tpm",
    "token_expires_at": "2024-01-15T10:00:00Z",
    "token": "2024-01-15T10:00:00Z",
    "credentialsId": "github-app-2024x1",
    "auth_token": "OAuth2Token",
    "private_key": "Ed25519PrivateKey",
    "client_secret": "arn:aws:secretsmanager:us-east-1:123456789012:secret:db-A1b2C3",
    "api_key": "OPENAI_API_KEY_V2",
    "tokenizer_class": "PreTrainedTokenizerFast2",
    "passwordEncoder": "bcrypt2a10rounds",
    "secret_ref": "vault://kv2/a1b2c3d4",
    "forgot_password": "Forgotten?",
}
SECRET = {
    "password": "Zk81" + "qpLw",
    "db.password": "Zk81" + "qpLw77",
    "DB_PASSWORD": "hun7er2" + "Zk8hun7",
    "passwordConfirmation": "W1nter2024" + "!x",
    "api_key": "a1b2c3" + "d4e5f6a7",
    "X-Api-Key": "9f8e7d" + "6c5b4a39",
    "apikey": "9f8e7d" + "6c5b4a39",
    "secretkey": "9f8e7d" + "6c5b4a39",
    "SECRET_KEY_BASE": "9f8e7d" + "6c5b4a39",
    "accessToken": "tR0ub4" + "dorZ3k9",
    "GITHUB_TOKEN": "tR0ub4" + "dorZ3k9",
    "token2": "tR0ub4" + "dorZ3k9",
    "webhook_secret_current": "tR0ub4" + "dorZ3k9",
    "credentials": "tR0ub4" + "dorZ3k9",
}
FORMS = ('{{"{0}": "{1}"}}', "{0}: {1}", "{0} = '{1}'", "export {0}={1}")


@pytest.mark.requirement("hygiene:leaks:few-false")
@pytest.mark.parametrize("key", ORDINARY)
def test_ordinary_configuration_is_left_alone_in_text_and_in_json(key: str):
    value = ORDINARY[key]
    assert mask_json({key: value})[1].total == 0
    for form in FORMS:
        assert mask(form.format(key, value))[1] == 0, form


@pytest.mark.requirement("hygiene:leaks:results")
@pytest.mark.parametrize("key", SECRET)
def test_a_credential_under_a_name_that_says_so_is_masked_in_text_and_in_json(key: str):
    value = SECRET[key]
    assert mask_json({key: value})[1].total == 1
    for form in FORMS:
        assert value not in mask(form.format(key, value))[0], form


def test_words_are_no_secret_but_where_a_person_chose_a_password():
    assert not secret_value("token", "base64v2", quoted=True)
    assert secret_value("password", "admin2024", quoted=True)
    assert not sensitive_key("secretary")
    assert not sensitive_key("passwordless_login")
    assert sensitive_key("APISecrets")


def test_a_value_that_is_masked_is_reported_once_whatever_rules_know_it():
    value = "tR0ub4" + "dorZ3k9q1w2e3"
    found = mask_json({"text": f"Authorization: Bearer {value}", "token": value})
    assert found[1].total == 1
    assert value not in json.dumps(found[0])


# --- the locked environment, as a corpus of real files

CODE = frozenset({".py", ".pyi", ".js", ".cjs", ".mjs", ".ts"})
CONFIGURATION = frozenset({".json", ".toml", ".yaml", ".yml", ".cfg", ".ini", ".lock"})
LISTS = frozenset({"RECORD", "METADATA"})
LARGEST = 2_000_000
ROOT = Path(__file__).parents[2]


def corpus() -> Iterator[Path]:
    """The files of the packages that the lock names, and of this repository but its tests."""
    roots = [Path(sysconfig.get_paths()["purelib"]), *(ROOT / name for name in ("src", "docs"))]
    for root in roots:
        for folder, _, names in os.walk(root):
            yield from (Path(folder, name) for name in names)
    yield from ROOT.glob("*.lock")
    yield from ROOT.glob("tests/**/package-lock.json")
    yield ROOT / "pyproject.toml"


def kind_of(path: Path) -> str | None:
    if path.suffix in CODE:
        return "code"
    return "configuration" if path.suffix in CONFIGURATION or path.name in LISTS else None


@pytest.mark.requirement("hygiene:leaks:few-false")
def test_real_files_have_no_more_than_one_false_mask_in_a_megabyte():
    scanner = Scanner()
    size = {"code": 0, "configuration": 0}
    masks = dict.fromkeys(size, 0)
    for path in corpus():
        kind = kind_of(path)
        if kind is None or path.stat().st_size > LARGEST:
            continue
        text = path.read_text("utf-8", "replace")
        size[kind] += len(text)
        found = len(scanner.scan(text))
        if path.suffix == ".json":
            found = max(found, _in_json(scanner, text))
        masks[kind] += found
    assert min(size.values()) > 1_000_000, size
    for kind, count in masks.items():
        assert count <= size[kind] / 1e6, (kind, count, size[kind], sys.version_info[:2])


def _in_json(scanner: Scanner, text: str) -> int:
    try:
        return scanner.scan_json(json.loads(text)).total
    except ValueError:
        return 0  # with comments, or in a made-up encoding
