"""A server's tool as an agent's tool: the handler, and the tools of a list.

The path of every call:

    params to plain values       what is no instance of the params dataclass is refused
    transaction begins
    session.call                 policy, the full schema, budgets, hygiene, audit: the bridge's
    ApprovalNeeded               where it needs approval: it waits for that, or comes back
    result                       a failure restores the session's state, a success commits it
    ToolInvoked                  after that, for success, failure and timeout alike
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import copy_context
from functools import partial

from bascule.clock import SYSTEM_CLOCK
from bascule.model.approval import RETURN, Asking, waiting_of
from bascule.model.call import CallLimits
from bascule.model.json import JsonObject, JsonValue, is_object
from bascule.model.name import door_name
from bascule.model.outcome import Failure, Outcome
from bascule.model.tool import ToolDescriptor
from bascule.node.bridge.toolset import ToolSet
from bascule.node.patience import Patience
from bascule.policy.schema_defaults import without_defaulted
from bascule.section.config import McpServerConfig
from bascule.section.dataclasses import SchemaType, SchemaUnsupported, params_type, result_type
from bascule.section.errors import McpConfigError, McpConnectionError, McpSchemaError
from bascule.section.inventory import shortened
from bascule.section.lifecycle import Lifecycle
from bascule.section.results import failed, result_of
from bascule.section.runtime import (
    AnyResult,
    AnyTool,
    ApprovalNeeded,
    OnProgress,
    Tool,
    ToolContext,
    ToolInvoked,
    ToolResult,
)
from bascule.section.session import Session

RECONNECTS = 3


class BridgedTool:
    """One tool of one server, called through the bridge."""

    def __init__(
        self,
        server: McpServerConfig,
        descriptor: ToolDescriptor,
        life: Lifecycle,
        session: Session,
        patience: Patience,
    ) -> None:
        self.server = server
        self.name = door_name(server.prefix, descriptor.name)
        self._descriptor = descriptor
        self._life = life
        self._session = session
        self._patience = patience
        self._limits = CallLimits(timeout=server.timeout)
        self._params = _params(server, descriptor)
        self._result, self._unsaid = _result(server, descriptor)

    def invoke(self, params: object, context: ToolContext) -> AnyResult:
        """Call the tool for a session; raise McpConnectionError when its server is lost."""
        session = context.session
        if session is not self._session:
            raise McpConfigError(
                f"{self.name!r} belongs to a section of another session: each section is bound to "
                "one, so make a section for this session too (they may share a bridge)"
            )
        with session.transaction() as transaction:
            given, result, lost = self._attempted(params, context.on_progress)
            if not result.success:
                transaction.rollback()
        session.publish(ToolInvoked(self.name, given, result, "mcp", self.server.name))
        if lost is not None:
            raise lost
        return result

    def tool(self, description: str, *, accepts_overrides: bool) -> AnyTool:
        """Return it in the form that a runtime expects."""
        shown = shortened(description)
        return Tool(
            name=self.name,
            description=shown,
            handler=self._handler(shown),
            params_type=self._params.type,
            result_type=dict if self._result is None else self._result.type,
            source="mcp",
            mcp_server=self.server.name,
            native_name=self._descriptor.name,
            accepts_overrides=accepts_overrides,
            lossy=(*self._params.lossy, *self._unsaid),
        )

    def _handler(self, doc: str) -> Callable[..., AnyResult]:
        """Return a function with the annotations of this tool, for runtimes that read them."""
        invoke = self.invoke

        def handler(params: object, *, context: ToolContext) -> AnyResult:
            return invoke(params, context)

        value = dict[str, JsonValue] if self._result is None else self._result.type
        handler.__name__ = handler.__qualname__ = self.name
        handler.__doc__ = doc
        handler.__annotations__ = {
            "params": self._params.type,
            "context": ToolContext,
            "return": ToolResult[value],
        }
        return handler

    def _attempted(
        self, params: object, on_progress: OnProgress | None
    ) -> tuple[object, AnyResult, McpConnectionError | None]:
        """Return the params as the dataclass, what came of the call, and the loss of the server."""
        try:
            given = self._given(params)
            arguments = self._params.dump(given)
        except (TypeError, ValueError) as problem:
            return None, failed("mcp_invalid_arguments", _of_arguments(str(problem))), None
        try:
            outcome = self._carried(arguments, on_progress)
        except McpConnectionError as error:
            return given, failed("mcp_unavailable", str(error)), error
        return given, result_of(outcome, self._result, timeout=self.server.timeout), None

    def _given(self, params: object) -> object:
        """Return params as the dataclass, made of plain values where they are such."""
        if isinstance(params, self._params.type):
            return params
        if params is None or is_object(params):
            return self._params.load(dict(params or {}))
        raise ValueError(
            f"params must be {self._params.type.__name__}, not {type(params).__name__}"
        )

    def _carried(self, arguments: JsonObject, on_progress: OnProgress | None) -> Outcome:
        """Call across the bridge. What provably never arrived is sent again once it can be."""
        # What the callback changes in a session belongs to the call's transaction.
        told = None if on_progress is None else partial(copy_context().run, on_progress)
        until = SYSTEM_CLOCK.monotonic() + self.server.timeout
        outcome = self._asked(arguments, self._limits, told)
        for _ in range(RECONNECTS):
            away = _away(outcome)
            if away is None:
                return outcome
            left = until - SYSTEM_CLOCK.monotonic()
            if left <= 0 or not away.retryable or self._life.lost(self.server):
                break
            outcome = self._asked(arguments, CallLimits(timeout=left), told)
        away = _away(outcome)
        if away is not None and self._life.lost(self.server) is not False:
            self._life.give_up(self.server, away.message)
        return outcome

    def _asked(self, arguments: JsonObject, limits: CallLimits, told: OnProgress | None) -> Outcome:
        """Call; where that needs approval, say so, and wait for it if the section does."""
        outcome = self._sent(arguments, limits, told, RETURN)
        waiting = waiting_of(outcome)
        if waiting is None:
            return outcome
        id, until = waiting.approval_id, waiting.expires_at
        self._session.publish(ApprovalNeeded(self.name, id, until, self.server.name))
        if not self._patience.seconds:
            return outcome
        longer, asking = self._patience.limits(limits), self._patience.asking(waiting)
        return self._sent(arguments, longer, told, asking)

    def _sent(
        self, arguments: JsonObject, limits: CallLimits, told: OnProgress | None, asking: Asking
    ) -> Outcome:
        session = self._life.current().session
        try:
            return session.call(
                self._descriptor.model_name,
                arguments,
                limits=limits,
                on_progress=told,
                approval=asking,
            )
        except RuntimeError as error:  # the bridge, the session or the loop is closed
            raise McpConnectionError(
                f"server {self.server.name!r} cannot be called: {error}",
                server_name=self.server.name,
                transport=self.server.transport,
            ) from error


def bridged_tools(
    servers: Mapping[str, McpServerConfig],
    listed: ToolSet,
    *,
    life: Lifecycle,
    session: Session,
    patience: Patience,
    accepts_overrides: bool,
) -> tuple[AnyTool, ...]:
    """Translate a list of tools; raise McpSchemaError for one that cannot be shown."""
    tools: dict[str, AnyTool] = {}
    for descriptor, entry in zip(listed, listed.anthropic(), strict=True):
        bridged = BridgedTool(servers[descriptor.server_id], descriptor, life, session, patience)
        tool = bridged.tool(entry["description"], accepts_overrides=accepts_overrides)
        first = tools.setdefault(tool.name, tool)
        if first is not tool:
            raise McpSchemaError(
                f"its name {tool.name!r} is also that of {first.mcp_server}/{first.native_name}; "
                "set tool_prefix on one of the servers",
                server_name=bridged.server.name,
                tool_name=descriptor.name,
            )
    return tuple(tools.values())


def _params(server: McpServerConfig, descriptor: ToolDescriptor) -> SchemaType:
    try:
        schema = without_defaulted(descriptor.input_schema)
        return params_type(server.name, descriptor.name, schema)
    except SchemaUnsupported as error:
        raise McpSchemaError(
            f"{error}; name it in disabled_tools to do without it",
            server_name=server.name,
            tool_name=descriptor.name,
        ) from error


def _result(
    server: McpServerConfig, descriptor: ToolDescriptor
) -> tuple[SchemaType | None, tuple[str, ...]]:
    """Return the type of the result and what it does not say; without a type it is a dict."""
    output = descriptor.output_schema
    if not is_object(output):
        return None, ()
    try:
        result = result_type(server.name, descriptor.name, output)
    except SchemaUnsupported as error:
        return None, (f"output $: {error}",)
    return result if result.types else None, tuple(f"output {line}" for line in result.lossy)


def _of_arguments(problem: str) -> str:
    """Return a problem with params as the bridge would say it: by its path in the arguments."""
    return f"arguments{problem[1:]}" if problem.startswith("$") else f"arguments: {problem}"


def _away(outcome: Outcome) -> Failure | None:
    """Return why a call could not be delivered; None when it was."""
    error = outcome.error
    return error if error is not None and error.code == "mcp_unavailable" else None
