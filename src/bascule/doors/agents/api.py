"""The routes of the agents API, and an application of them for a host to mount.

Reading needs ``registry:read``, changing ``registry:write``, reconnecting ``servers:test``. Every
answer tells the state that there is, and every refusal has a status that says so.
"""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from bascule.asgi.errors import Refused
from bascule.asgi.guard import GuardedApp, GuardedRoute, GuardRules, route
from bascule.asgi.json import json_response, read_as, read_object
from bascule.asgi.parameters import only_parameters
from bascule.asgi.verifier import Verifier
from bascule.auth.identity import Principal
from bascule.doors.agents.ports import Agents, Writer
from bascule.errors import InvalidRecord
from bascule.model.json import JsonObject, JsonValue
from bascule.wire.api.addresses import AGENT_ENTRIES, AGENT_RECONNECT, AGENT_SERVERS, AGENTS
from bascule.wire.api.agents import AgentList, AgentServers, Reconnect, ServerChanged

ENTRY = f"{AGENT_ENTRIES}/{{name}}"


def agents_app(agents: Agents, verifier: Verifier, rules: GuardRules | None = None) -> GuardedApp:
    """Return the API as an ASGI application, guarded like every other face."""
    return GuardedApp(agents_routes(agents), verifier, rules)


def agents_routes(agents: Agents) -> list[GuardedRoute]:
    async def listed(request: Request) -> Response:
        """List the agents, and what keeps their file as it is now from being used."""
        return json_response(AgentList(agents.agents(), agents.problems()))

    async def servers(request: Request) -> Response:
        """List an agent's servers, or those of all agents, and how they stand."""
        asked = _agent_id(request) if "agent_id" in request.query_params else None
        ids = [one.agent_id for one in agents.agents()] if asked is None else [asked]
        found = [server for one in ids for server in agents.servers(one)]
        return json_response(AgentServers(asked, found, agents.problems()))

    async def reconnect(request: Request) -> Response:
        """Tear down a server and connect it once, now."""
        only_parameters(request)
        body = await read_as(request, Reconnect)
        agent_id = body.agent_id or _owner(agents, body.server_name)
        server = await agents.reconnect(agent_id, body.server_name)
        name = body.server_name
        return json_response(ServerChanged(agent_id=agent_id, server_name=name, server=server))

    return [
        route(AGENTS, listed, ["GET"], permission="registry:read"),
        route(AGENT_SERVERS, servers, ["GET"], permission="registry:read"),
        route(AGENT_RECONNECT, reconnect, ["POST"], permission="servers:test"),
        *_entry_routes(agents),
    ]


def _entry_routes(agents: Agents) -> list[GuardedRoute]:
    async def create(request: Request) -> Response:
        """Add a server to an agent, or to all (``defaults``)."""
        agent_id = _agent_id(request)
        changed = await agents.create(agent_id, await read_object(request), _writer(request))
        return json_response(changed, 201)

    async def replace(request: Request) -> Response:
        """Put an entry in the place of a server's."""
        agent_id, name = _agent_id(request), _name(request)
        entry = _named(await read_object(request), name)
        return json_response(await agents.replace(agent_id, name, entry, _writer(request)))

    async def merge(request: Request) -> Response:
        """Change some fields of a server; null takes one away."""
        agent_id, name = _agent_id(request), _name(request)
        patch = _named(await read_object(request), name)
        return json_response(await agents.merge(agent_id, name, patch, _writer(request)))

    async def remove(request: Request) -> Response:
        """Take a server of an agent's own away."""
        return json_response(await agents.remove(_agent_id(request), _name(request)))

    return [
        route(AGENT_ENTRIES, create, ["POST"], permission="registry:write").confirmed(),
        route(ENTRY, replace, ["PUT"], permission="registry:write").confirmed(),
        route(ENTRY, merge, ["PATCH"], permission="registry:write").confirmed(),
        route(ENTRY, remove, ["DELETE"], permission="registry:write"),
    ]


def _writer(request: Request) -> Writer:
    """Return in which capacity a request writes."""
    asking = request.scope.get("principal")
    trusted = isinstance(asking, Principal) and asking.may("registry:accept")
    return "administrator" if trusted else "operator"


def _owner(agents: Agents, name: str) -> str:
    """Return the one agent that has a server of this name."""
    ids = [one.agent_id for one in agents.agents()]
    found = [one for one in ids if any(server.name == name for server in agents.servers(one))]
    if not found:
        raise Refused("not_found", f"no agent has a server {name!r}")
    if len(found) > 1:
        raise Refused(
            "wrong_state",
            f"{len(found)} agents have a server {name!r} ({', '.join(found)}): say which, agent_id",
            details={"agents": found},
        )
    return found[0]


def _agent_id(request: Request) -> str:
    only_parameters(request, "agent_id")
    found = request.query_params.getlist("agent_id")
    if len(found) != 1 or not found[0]:
        raise Refused("invalid_request", "say which agent, once: ?agent_id=…")
    return found[0]


def _name(request: Request) -> str:
    return str(request.path_params["name"])


def _named(entry: JsonObject, name: str) -> dict[str, JsonValue]:
    """Return an entry under the name of its path; another one in the body is a mistake."""
    if entry.get("name", name) != name:
        raise InvalidRecord(["name: differs from the one in the path"])
    return {**entry, "name": name}
