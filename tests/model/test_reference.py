"""References inside configuration values."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bascule.model.reference import (
    Stored,
    Template,
    Variable,
    looks_like_a_credential,
    names_a_credential,
    parse_reference,
    parse_template,
    parse_value,
)


def resolved(text: str, **variables: str) -> str:
    return parse_template(text).resolve(variables.get)


@pytest.mark.requirement("references:env:required")
def test_a_required_reference_stands_for_the_variable():
    assert parse_template("${ENV:API_TOKEN}") == Template((Variable("API_TOKEN"),))
    assert resolved("${ENV:API_TOKEN}", API_TOKEN="t") == "t"


@pytest.mark.requirement("references:env:required")
def test_a_required_reference_without_a_value_names_the_variable():
    with pytest.raises(KeyError, match="API_TOKEN"):
        resolved("${ENV:API_TOKEN}")


@pytest.mark.requirement("references:env:default")
def test_a_default_counts_only_when_the_variable_is_not_set():
    assert resolved("${ENV:HOST:-localhost}") == "localhost"
    assert resolved("${ENV:HOST:-localhost}", HOST="example.org") == "example.org"
    assert resolved("${ENV:HOST:-}") == ""
    assert resolved("${ENV:URL:-http://a:1/b?c-:-d}") == "http://a:1/b?c-:-d"


@pytest.mark.requirement("references:short-form")
def test_the_short_form_means_the_same():
    assert parse_template("${HOST}") == parse_template("${ENV:HOST}")
    assert resolved("${HOST:-x}") == "x"


@pytest.mark.requirement("references:several-per-value")
def test_several_references_stand_among_literal_text():
    text = "https://${HOST}:${ENV:PORT:-443}/a"
    assert resolved(text, HOST="h") == "https://h:443/a"
    assert [variable.name for variable in parse_template(text).variables] == ["HOST", "PORT"]


@pytest.mark.requirement("references:dollar-escape")
def test_two_dollars_are_one_dollar():
    assert resolved("a$$b") == "a$b"
    assert resolved("$${HOST}", HOST="h") == "${HOST}"
    assert resolved("$$${HOST}", HOST="h") == "$h"


def test_a_lone_dollar_is_itself():
    assert resolved("cost: 5$ or $HOME") == "cost: 5$ or $HOME"


def test_a_value_of_a_variable_is_not_read_for_references_again():
    assert resolved("${A}", A="${B}", B="b") == "${B}"


@pytest.mark.requirement("references:malformed")
@pytest.mark.parametrize(
    "text", ["${", "a${ENV:X", "${}", "${ENV:}", "${1X}", "${A B}", "${ENV:A-b}", "${a.b}"]
)
def test_a_reference_that_is_not_one_is_refused(text: str):
    with pytest.raises(ValueError, match=r"reference|without"):
        parse_template(text)


@pytest.mark.requirement("references:secret:whole-value", "references:file:whole-value")
def test_secrets_and_files_are_whole_values():
    assert parse_value("secret://gitlab") == Stored("secret", "gitlab")
    assert parse_value("file:///run/token") == Stored("file", "/run/token")
    assert parse_value("Bearer secret://gitlab") == Template(("Bearer secret://gitlab",))
    assert parse_value("see file:///run/token") == Template(("see file:///run/token",))


@given(st.text("ab$ {}", max_size=12))
def test_a_text_is_either_refused_or_kept_but_for_its_references(text: str):
    try:
        template = parse_template(text)
    except ValueError:
        assert "${" in text
        return
    if "$" not in text:
        assert template.resolve({}.get) == text


@given(st.text(max_size=30))
def test_every_literal_can_be_written(text: str):
    assert resolved(text.replace("$", "$$")) == text


@pytest.mark.parametrize(
    "name",
    [
        "PGPASSWORD",
        "GITHUBTOKEN",
        "MYAPIKEY",
        "API_TOKEN",
        "GITLAB_PAT",
        "token",
        "DB_PASSWORD",
        "AWS_SECRET_ACCESS_KEY",
        "OPENAI_API_KEY",
    ],
)
def test_names_of_credentials_are_recognised(name: str):
    assert names_a_credential(name)


@pytest.mark.parametrize(
    "name", ["HOME", "PATH", "KEYBOARD", "PATTERN", "LOG_LEVEL", "MONKEY", "MAX_TOKENS"]
)
def test_ordinary_names_are_not_taken_for_credentials(name: str):
    assert not names_a_credential(name)


@pytest.mark.parametrize(
    "text",
    [
        "gh" + "p_" + "a1B2c3D4e5" * 3,
        "https://me:hunter2@example.org/",
        "--api-key=abcdef123456",
        "https://example.org/?token=abcdef123456",
    ],
)
def test_texts_that_hold_a_credential_are_recognised(text: str):
    assert looks_like_a_credential(text)


@pytest.mark.parametrize("text", ["uvx", "mcp-server-files@1.2.3", "https://example.org/mcp", "-v"])
def test_ordinary_texts_are_not_taken_for_credentials(text: str):
    assert not looks_like_a_credential(text)


@pytest.mark.parametrize("name", ["github-token", "x", "A.b_c-9", "prod.github.token2"])
def test_a_bare_name_means_the_secret_of_that_name(name: str):
    assert parse_reference(name) == Stored("secret", name)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "two words",
        "a/b",
        "env://NAME",
        "Bearer abc",
        "ghp_0123456789abcdef0123456789",
        "0123456789abcdef0123456789abcdef01234567",
        "550e8400-e29b-41d4-a716-446655440000",
        "x" * 65,
        "$$name",
    ],
)
def test_what_may_be_the_credential_itself_is_no_reference(text: str):
    with pytest.raises(ValueError, match="must be a reference") as caught:
        parse_reference(text)
    assert not text or text not in str(caught.value)


@pytest.mark.parametrize("text", ["secret://a", "file:///a", "${ENV:A}", "Bearer ${A}", "${A:-b}"])
def test_a_written_out_reference_is_what_it_is_elsewhere(text: str):
    assert parse_reference(text) == parse_value(text)
