"""One error shape with an honest status, and nothing internal in it."""

from __future__ import annotations

import logging
from typing import ClassVar

import msgspec
import pytest
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from bascule import errors
from bascule.asgi.errors import HTTP_STATUSES, Refused, status_of
from bascule.asgi.guard import OPEN, route
from bascule.errors import BasculeError
from bascule.wire.faults import FACES
from tests.asgi.caller import Answer, app_of, ask

TABLE: dict[str, tuple[Exception, int, str]] = {
    "invalid record": (errors.InvalidRecord(["a.b: is required", "c: no"]), 422, "invalid_record"),
    "session": (errors.SessionRefused("disabled", "no"), 403, "session_refused"),
    "down": (errors.ServerUnavailable("down"), 503, "mcp_unavailable"),
    "late": (errors.DeadlineExceeded("late"), 504, "mcp_timeout"),
    "lost": (errors.OutcomeUnknown("lost"), 502, "mcp_outcome_unknown"),
    "remote": (errors.RemoteError(-32603, "broke"), 502, "mcp_tool_error"),
    "denied": (
        errors.ToolError("mcp_policy_denied", "no", retryable=False),
        403,
        "mcp_policy_denied",
    ),
    "refused": (Refused("already_exists", "exists"), 409, "already_exists"),
    "of the framework": (HTTPException(404, "gone"), 404, "not_found"),
    "unknown status": (HTTPException(418, "teapot"), 400, "invalid_request"),
    "shape": (msgspec.ValidationError("Expected `int`"), 422, "invalid_record"),
    "bug": (KeyError("secret path /etc/x"), 500, "internal"),
    "own bug": (BasculeError("secret path /etc/x"), 500, "internal"),
    "code that nobody knows": (Refused("whatever", "secret path /etc/x"), 500, "internal"),
    "framework's bug": (HTTPException(500, "secret path /etc/x"), 500, "internal"),
}


async def answer_to(error: Exception) -> Answer:
    async def endpoint(request: Request) -> Response:
        raise error

    return await ask(app_of(route("/", endpoint, ["GET"], permission=OPEN)), "GET", "/")


@pytest.mark.requirement("admin:errors")
@pytest.mark.parametrize("case", TABLE)
async def test_every_error_has_one_shape_and_an_honest_status(case: str):
    error, status, code = TABLE[case]
    answer = await answer_to(error)
    assert answer.status == status
    assert set(answer.json) == {"error"}
    assert set(answer.json["error"]) == {"code", "message", "details"}
    assert answer.code == code
    assert answer.header("content-type") == "application/json"


@pytest.mark.requirement("admin:errors")
async def test_all_problems_of_a_record_are_told():
    answer = await answer_to(errors.InvalidRecord(["a.b: is required", "c: no"]))
    assert answer.json["error"]["details"] == {"problems": ["a.b: is required", "c: no"]}


async def test_an_error_with_details_of_its_own_tells_them():
    class Conflict(BasculeError):
        code = "conflict"
        details: ClassVar = {"current_revision": 7}

    answer = await answer_to(Conflict("changed"))
    assert answer.json["error"]["details"] == {"current_revision": 7}


@pytest.mark.parametrize("case", ["bug", "own bug", "code that nobody knows", "framework's bug"])
async def test_an_internal_error_is_logged_under_the_id_it_is_told_by(
    case: str, caplog: pytest.LogCaptureFixture
):
    error, *_ = TABLE[case]
    with caplog.at_level(logging.ERROR, "bascule.asgi.errors"):
        answer = await answer_to(error)
    assert b"secret" not in answer.body
    [record] = caplog.records
    request_id = answer.header("x-request-id")
    assert answer.json["error"]["details"] == {"request_id": request_id}
    assert str(request_id) in record.getMessage()
    assert record.exc_info is not None
    assert record.exc_info[1] is error


async def test_nothing_at_a_path_and_a_wrong_method_have_the_shape_too():
    missing = await ask(app_of(), "GET", "/none")
    assert (missing.status, missing.code) == (404, "not_found")
    assert (await ask(app_of(), "DELETE", "/")).code == "method_not_allowed"


def test_no_error_looks_like_a_success_and_no_code_is_in_two_tables():
    assert all(status_of(code) >= 400 for code in (*FACES, *HTTP_STATUSES))
    assert not set(FACES) & set(HTTP_STATUSES)
