"""A chat completion request, read once: what the loop must understand, and the rest untouched.

What a model's server would refuse for its own reasons is left to it; a history
that could lead the loop astray is refused here, before anything is executed.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from bascule.errors import BasculeError
from bascule.model.json import JsonObject, JsonValue, is_array, is_object, objects

MAX_MESSAGES = 10_000
MAX_TOOLS = 1024
_ROLES = frozenset({"system", "developer", "user", "assistant", "tool", "function"})
_CHOICES = frozenset({"none", "auto", "required"})
# What came before tools: beside ours, an upstream would refuse it.
_OLD = ("functions", "function_call")
_OURS = frozenset({"messages", "tools", "tool_choice", "parallel_tool_calls"})


class BadChat(BasculeError):
    """A request that makes no sense; ``param`` names the part of it."""

    code = "invalid_request"

    def __init__(self, message: str, *, param: str | None = None) -> None:
        self.param = param
        super().__init__(message)


class ChatRequest(Struct, frozen=True, kw_only=True):
    """One request. ``rest`` has the fields that go upstream as they came."""

    rest: JsonObject
    messages: tuple[JsonObject, ...]
    tools: tuple[JsonObject, ...] = ()
    tool_choice: JsonValue = None
    parallel: bool | None = None
    stream: bool = False

    @property
    def model(self) -> str:
        """Return the name of the model, as the upstream knows it."""
        return str(self.rest.get("model", ""))

    @property
    def wants_usage(self) -> bool:
        """Say whether a stream is to end with what it has used."""
        options = self.rest.get("stream_options")
        return is_object(options) and options.get("include_usage") is True

    @property
    def wants_json(self) -> bool:
        """Say whether the answer as a whole is to be JSON, so that nothing may be put before it."""
        wanted = self.rest.get("response_format")
        return is_object(wanted) and wanted.get("type") not in (None, "text")

    def body(self, messages: Sequence[JsonObject]) -> dict[str, JsonValue]:
        """Return an upstream request without tools; the history is given."""
        return {**self.rest, "messages": messages, "stream": self.stream}


def read_chat(plain: JsonObject) -> ChatRequest:
    """Return a request, or raise BadChat naming the part that is wrong."""
    _check_scalars(plain)
    parallel = plain.get("parallel_tool_calls")
    return ChatRequest(
        rest={key: value for key, value in plain.items() if key not in _OURS},
        messages=_messages(plain.get("messages")),
        tools=_tools(plain.get("tools")),
        tool_choice=_tool_choice(plain.get("tool_choice")),
        parallel=None if parallel is None else bool(parallel),
        stream=bool(plain.get("stream")),
    )


def _check_scalars(plain: JsonObject) -> None:
    if not isinstance(plain.get("model"), str) or not plain["model"]:
        raise BadChat("model must be a string", param="model")
    for name in ("stream", "parallel_tool_calls"):
        if not isinstance(plain.get(name), bool | None):
            raise BadChat(f"{name} must be true or false", param=name)
    for name in ("stream_options", "response_format"):
        if plain.get(name) is not None and not is_object(plain[name]):
            raise BadChat(f"{name} must be an object", param=name)
    for name in _OLD:
        if plain.get(name) is not None:
            raise BadChat(f"{name} is not read here, it is out of use: use tools", param=name)
    _check_choices(plain.get("n"))


def _check_choices(several: JsonValue) -> None:
    if several is None:
        return
    if not isinstance(several, int) or isinstance(several, bool):
        raise BadChat("n must be a whole number", param="n")
    if several != 1:
        # Each choice would call tools of its own: one request, several conversations.
        raise BadChat("n must be 1 while tools are executed for you", param="n")


def _messages(value: JsonValue) -> tuple[JsonObject, ...]:
    if not is_array(value) or not value:
        raise BadChat("messages must be a list that is not empty", param="messages")
    if len(value) > MAX_MESSAGES:
        raise BadChat(f"more than {MAX_MESSAGES} messages", param="messages")
    for index, message in enumerate(value):
        _check_message(message, f"messages[{index}]")
    _check_answers(value)
    return tuple(value)


def _check_message(message: JsonValue, where: str) -> None:
    if not is_object(message):
        raise BadChat(f"{where} must be an object", param=where)
    role = message.get("role")
    if not isinstance(role, str) or role not in _ROLES:
        known = ", ".join(sorted(_ROLES))
        raise BadChat(f"{where}.role must be one of: {known}", param=f"{where}.role")
    content = message.get("content")
    if content is not None and not isinstance(content, str) and not is_array(content):
        raise BadChat(f"{where}.content must be a string or a list", param=f"{where}.content")
    if message.get("tool_calls") is not None:
        _check_calls(message, f"{where}.tool_calls")


def _check_calls(message: JsonObject, where: str) -> None:
    calls = message["tool_calls"]
    if message["role"] != "assistant" or not is_array(calls):
        raise BadChat(f"{where} must be a list of an assistant's calls", param=where)
    for index, call in enumerate(calls):
        if not is_object(call) or not isinstance(call.get("id"), str):
            raise BadChat(f"{where}[{index}] must be an object with an id", param=where)
        if call.get("type", "function") == "function" and not _is_function_call(call):
            raise BadChat(f"{where}[{index}].function needs a name and arguments", param=where)
    if len({call["id"] for call in calls}) < len(calls):
        raise BadChat(f"{where} has two calls with one id", param=where)


def _is_function_call(call: JsonObject) -> bool:
    function = call.get("function")
    return is_object(function) and all(
        isinstance(function.get(part), str) for part in ("name", "arguments")
    )


def _check_answers(messages: Sequence[JsonObject]) -> None:
    """Refuse results without a call, and calls without a result."""
    waiting: set[str] = set()
    for index, message in enumerate(messages):
        where = f"messages[{index}]"
        if message["role"] == "tool":
            answered = message.get("tool_call_id")
            if not isinstance(answered, str) or answered not in waiting:
                text = f"{where} has role 'tool' but answers no call of the message before it"
                raise BadChat(text, param=f"{where}.tool_call_id")
            waiting.discard(answered)
            continue
        _refuse_unanswered(waiting, where)
        waiting = _calls_of(message)
    _refuse_unanswered(waiting, "the end of messages")


def _calls_of(message: JsonObject) -> set[str]:
    found = (call.get("id") for call in objects(message.get("tool_calls")))
    return {one for one in found if isinstance(one, str)}


def _refuse_unanswered(waiting: set[str], where: str) -> None:
    if waiting:
        missing = ", ".join(sorted(waiting)[:10])
        raise BadChat(f"tool calls without a result before {where}: {missing}", param="messages")


def _tools(value: JsonValue) -> tuple[JsonObject, ...]:
    if value is None:
        return ()
    if not is_array(value) or len(value) > MAX_TOOLS:
        raise BadChat(f"tools must be a list of at most {MAX_TOOLS}", param="tools")
    for index, tool in enumerate(value):
        if tool_name(tool) is None:
            raise BadChat(f"tools[{index}] must be a tool with a name", param=f"tools[{index}]")
    return tuple(value)


def tool_name(tool: JsonValue) -> str | None:
    """Return the name inside ``{"type": t, t: {"name": …}}``, or None when it has none."""
    if not is_object(tool):
        return None
    inner = tool.get(str(tool.get("type", "function")))
    name = inner.get("name") if is_object(inner) else None
    return name if isinstance(name, str) and name else None


def _tool_choice(value: JsonValue) -> JsonValue:
    if value is None or is_object(value):
        return value
    if not isinstance(value, str) or value not in _CHOICES:
        known = ", ".join(sorted(_CHOICES))
        raise BadChat(f"tool_choice must be an object or one of: {known}", param="tool_choice")
    return value
