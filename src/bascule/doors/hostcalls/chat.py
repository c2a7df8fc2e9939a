"""``cchat_*``: a guest talks to a model, which may call the guest's tools and those of its task.

A session is messages, tools and parameters; ``cchat_send`` asks with what it has then. With
AUTO_TOOL_CALL the conversation that the loop holds becomes part of the session, as in Spear.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import ClassVar, Final, TypeAlias

import msgspec

from bascule.doors.hostcalls.abi import Errno, Fault
from bascule.doors.hostcalls.conversation import (
    Conversation,
    Ending,
    Flags,
    failed_body,
    tools_for,
)
from bascule.doors.hostcalls.guest import Guest
from bascule.doors.hostcalls.guest_tools import GuestTool, read_tool
from bascule.doors.hostcalls.handles import Handle, Kind
from bascule.doors.hostcalls.parameters import ChatParameters, read_parameter
from bascule.doors.hostcalls.responses import (
    MOST_WAITING,
    ChatResponse,
    StreamedResponse,
    WholeResponse,
)
from bascule.errors import BasculeError
from bascule.loop.offer import NameTaken
from bascule.model.json import JsonObject, JsonValue
from bascule.model.session import SessionRequest
from bascule.wire.task_config import HOST_ONLY_PREFIX

_SET_PARAM: Final = 1
_GET_METRICS: Final = 2
#: What a message or a parameter costs besides its text.
_OVERHEAD: Final = 256
_ALL_FLAGS: Final = Flags.METRICS | Flags.AUTO_TOOL_CALL | Flags.STREAM
#: What is done with a conversation that has ended.
Learn: TypeAlias = Callable[[Ending], None]


class ChatSession(Handle):
    """What a guest has said so far, and how it wants to be answered."""

    kind: ClassVar[Kind] = "ChatSession"

    def __init__(self, guest: Guest) -> None:
        super().__init__()
        self._guest = guest
        self._messages: list[JsonObject] = []
        self._tools: dict[str, GuestTool] = {}
        self._parameters = ChatParameters()
        #: What conversations have added, on the loop's thread: taken over before anything else.
        self._learned: deque[JsonObject] = deque()
        self._weights: dict[str, int] = {}
        self._kept = 0

    def say(self, role: str, content: str) -> None:
        """Take a message, or -ENOMEM."""
        self._take_over()
        self._keep(len(role) + len(content))
        self._messages.append({"role": role, "content": content})

    def register(self, tool: GuestTool, size: int) -> None:
        """Take a tool, or -ENOMEM; the first of a name stays."""
        if tool.name not in self._tools:
            self._keep(size)
            self._tools[tool.name] = tool

    def set_param(self, key: str, value: JsonValue) -> None:
        """Set a parameter; -EACCES at once for more than the guest may have."""
        changed = self._parameters.having(key, value)
        if changed.request != self._parameters.request:
            self._guest.crossing.wait(partial(_try, self._guest, changed.narrowing))
        if changed.forwarded is not self._parameters.forwarded:
            self._weigh(key, value)
        # Not as it was before: a tool of the guest's may have narrowed it meanwhile.
        self._parameters = self._parameters.having(key, value)

    def ask(self, flags: Flags) -> Conversation:
        """Return what is asked now; what is said later is no part of it."""
        self._take_over()
        self._guest.keep(0)
        return Conversation(
            guest=self._guest,
            messages=tuple(self._messages),
            tools=dict(self._tools),
            parameters=self._parameters,
            flags=flags,
            size=self._kept,
        )

    def learn(self, ending: Ending) -> None:
        """Go on from where a conversation has ended; on any thread."""
        self._learned.extend(ending.history())

    def close(self) -> None:
        self._guest.let_go(self._kept)

    def _take_over(self) -> None:
        while self._learned:
            message = self._learned.popleft()
            self._messages.append(message)
            size = len(msgspec.json.encode(message)) + _OVERHEAD
            self._kept += size
            self._guest.usage.kept_bytes += size

    def _weigh(self, key: str, value: JsonValue) -> None:
        size = len(key) + len(msgspec.json.encode(value))
        if size > self._weights.get(key, 0):
            self._keep(size - self._weights.get(key, 0))
            self._weights[key] = size

    def _keep(self, size: int) -> None:
        """Count what is kept here for the guest, or -ENOMEM."""
        self._guest.keep(size + _OVERHEAD)
        self._kept += size + _OVERHEAD


async def _try(guest: Guest, request: SessionRequest) -> None:
    """Open a session as it would be opened, to see whether it is refused."""
    async with tools_for(guest, request):
        return


def cchat_create(guest: Guest) -> int:
    if guest.host.models is None:
        raise Fault(Errno.ENOSYS)
    return guest.handles.add(ChatSession(guest))


def cchat_write_msg(
    guest: Guest, number: int, role: int, role_length: int, content: int, content_length: int
) -> int:
    said_by = guest.memory.read(role, role_length)
    text = guest.memory.read(content, content_length)
    session = guest.handles.find(number, ChatSession)
    session.say(said_by.decode("utf-8", "replace"), text.decode("utf-8", "replace"))
    return 0


def cchat_write_fn(guest: Guest, number: int, index: int, pointer: int, length: int) -> int:
    """Register a tool; what cannot be read as one is taken and never offered, as in Spear."""
    data = guest.memory.json(pointer, length)
    session = guest.handles.find(number, ChatSession)
    tool = read_tool(index, data)
    if tool is not None:
        session.register(tool, len(data))
    return 0


def cchat_ctl(guest: Guest, number: int, command: int, pointer: int, length_pointer: int) -> int:
    memory = guest.memory
    if command == _SET_PARAM:
        data = memory.json(pointer, memory.u32(length_pointer))
        _set_param(guest, number, data)
        return 0
    if command != _GET_METRICS:
        raise Fault(Errno.EINVAL)
    response = guest.handles.find(number, ChatResponse)
    return memory.answer(memory.window(pointer, length_pointer), response.metrics())


def _set_param(guest: Guest, number: int, data: bytes) -> None:
    key, value = read_parameter(data)
    handle = _found(guest, number)
    if key.startswith(HOST_ONLY_PREFIX):
        raise Fault(Errno.EACCES)
    handle.set_param(key, value)


def cchat_send(guest: Guest, number: int, flags: int) -> int:
    """Ask; with STREAM the answer is still to come when it returns.

    A tool of the guest's named like one of its task is -EEXIST.
    """
    session = guest.handles.find(number, ChatSession)
    conversation = session.ask(Flags(flags & _ALL_FLAGS))
    learn = session.learn if conversation.runs_tools else _forget
    send = _stream if Flags.STREAM in conversation.flags else _whole
    return send(guest, conversation, learn)


def _whole(guest: Guest, conversation: Conversation, learn: Learn) -> int:
    response = WholeResponse(guest, metrics=conversation.measures)
    number = guest.handles.add(response)
    try:
        _hold(guest, conversation, learn, response)
    except BaseException:
        cchat_close(guest, number)
        raise
    return number


def _hold(guest: Guest, conversation: Conversation, learn: Learn, response: WholeResponse) -> None:
    try:
        ending = guest.crossing.wait(conversation.hold)
    except NameTaken:
        raise Fault(Errno.EEXIST) from None
    except BasculeError as error:
        response.answered(failed_body(error))
    else:
        learn(ending)
        response.answered(ending.body(), ending.conclusion.usage)


def _stream(guest: Guest, conversation: Conversation, learn: Learn) -> int:
    size = conversation.size + MOST_WAITING  # both are held for each that is open
    guest.keep(size)
    let_go = partial(guest.let_go, size)
    response = StreamedResponse(guest.crossing, metrics=conversation.measures, let_go=let_go)
    try:
        number = guest.handles.add(response)
    except Fault:
        let_go()
        raise
    guest.crossing.begin(partial(response.hold, conversation, learn))
    return number


def _forget(ending: Ending) -> None:
    """Leave the session as it is: a raw turn is the guest's to go on from."""
    del ending


def cchat_recv(guest: Guest, number: int, pointer: int, length_pointer: int) -> int:
    response = guest.handles.find(number, ChatResponse)
    window = guest.memory.window(pointer, length_pointer)
    written = guest.memory.answer(window, response.read())
    response.was_read()
    return written


def cchat_close(guest: Guest, number: int) -> int:
    """Close a session or a response; a second time does nothing, as in Spear."""
    if not guest.handles.was_closed(number):
        guest.handles.close(number, type(_found(guest, number)))
    return 0


def _found(guest: Guest, number: int) -> ChatSession | ChatResponse:
    found = guest.handles.find(number, Handle)
    if not isinstance(found, ChatSession | ChatResponse):
        raise Fault(Errno.EBADF)
    return found
