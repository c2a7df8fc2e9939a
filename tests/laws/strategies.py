"""Cases for the laws of policy: a small world in which everything meets everything.

Two generators of the same shape: a fast seeded one for counts, and a Hypothesis one that
shrinks. Four known servers and one that nobody knows, five tools, patterns that overlap.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, TypeVar

from hypothesis import strategies as st
from msgspec import convert

from bascule.errors import SessionRefused
from bascule.model.platform import PlatformRecord
from bascule.model.profile import ProfileRecord
from bascule.model.server import ServerRecord
from bascule.model.session import SessionRequest
from bascule.model.snapshot import Snapshot
from bascule.model.task import TaskPolicy
from bascule.model.user import UserRecord
from bascule.policy.compose import Effective, compose
from tests.laws.oracle import Case

T = TypeVar("T")
Plain = dict[str, Any]

SERVERS = ("a", "b", "c", "d")
ANY_SERVER = (*SERVERS, "unknown")
TAGS = ("scm", "web")
TOOLS = ("read_file", "write_file", "delete_all", "search", "read")
PATTERNS = (
    "*",
    "read_*",
    "read*",
    "*_file",
    "?ead",
    "search",
    "delete_*",
    "a/read_*",
    "b/*",
    "c/delete_all",
    "d/?*",
    "nothing",
)
PROFILES = ("p", "q")
ENVIRONMENTS = ("dev", "prod")
PEOPLE = ("alice", "bob")
GROUPS = ("readers", "writers")


def universe() -> list[tuple[str, str]]:
    return [(server, tool) for server in ANY_SERVER for tool in TOOLS]


def registry_of(case: Case) -> Snapshot:
    servers = {
        server: convert(
            {"server_id": server, "transport": "stdio", "stdio": {"command": "x"}} | record,
            ServerRecord,
        )
        for server, record in case.servers.items()
    }
    profiles = {
        name: convert({"name": name} | profile, ProfileRecord)
        for name, profile in case.profiles.items()
    }
    return Snapshot(
        revision=1,
        servers=servers,
        profiles=profiles,
        platform=convert(case.platform, PlatformRecord),
        users={
            name: convert({"user_id": name} | user, UserRecord) for name, user in case.users.items()
        },
    )


def composed(case: Case, *more: Plain) -> Effective:
    return compose(
        registry_of(case),
        None if case.task is None else convert(case.task, TaskPolicy),
        *(convert(asked, SessionRequest) for asked in (case.session, *more)),
        environment=case.environment,
        person=case.person,
        acting=case.acting,
    )


def tools_of(case: Case, *more: Plain) -> set[tuple[str, str]]:
    """Return every tool that a case allows, with more requests; a refused session has none."""
    try:
        effective = composed(case, *more)
    except SessionRefused:
        return set()
    gates = {server: effective.gate(server) for server in ANY_SERVER}
    return {(server, tool) for server, tool in universe() if gates[server](tool).allowed}


class Dice:
    """Seeded choices, each a little biased so that cases are neither empty nor wide open."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng

    def chance(self, share: float) -> bool:
        return self.rng.random() < share

    def some(self, items: Sequence[T], most: int = 4) -> list[T]:
        return [self.rng.choice(items) for _ in range(self.rng.randint(0, most))]

    def maybe(self, key: str, value: Any, share: float) -> Plain:
        return {key: value} if self.chance(share) else {}

    def server(self) -> Plain:
        everything = self.chance(0.5)
        return {
            "enabled": self.chance(0.9),
            "tags": self.some(TAGS, 2),
            "allowed_tools": ["*"] if everything else self.some(PATTERNS),
            "effects": {"read": self.some(PATTERNS[:6], 2)},
        }

    def selection(self, wide: float = 0.3) -> Plain:
        plenty = [*SERVERS] if self.chance(0.4) else self.some(ANY_SERVER, 5)
        return {
            **self.maybe("default_server_ids", self.some(ANY_SERVER, 5), 0.7 - wide),
            **self.maybe("allowed_server_ids", plenty, 0.5),
            **self.maybe("server_tags", self.some(TAGS, 2), 0.2),
            **self.maybe("tool_allowlist", self.some(PATTERNS), 0.3),
            **self.maybe("tool_denylist", self.some(PATTERNS[1:], 2), 0.3),
            **self.maybe("read_only", True, 0.15),
        }

    def profile(self) -> Plain:
        entries = {name: self.selection() for name in ENVIRONMENTS if self.chance(0.4)}
        return {**self.selection(0), **self.maybe("environments", entries, 0.7)}

    def task(self) -> Plain:
        return {
            "enabled": self.chance(0.9),
            **self.selection(0),
            **self.maybe("profile", self.rng.choice((*PROFILES, "gone")), 0.35),
            **self.maybe("profile_overrides", self.selection(), 0.3),
            **self.maybe("max_tools", self.rng.randint(1, 8), 0.3),
            **self.maybe("users", "open", 0.3),
            **self.maybe("allowed_groups", self.some(GROUPS, 2), 0.1),
        }

    def session(self) -> Plain:
        return {
            **self.maybe("enabled", self.chance(0.8), 0.5),
            **self.maybe("server_ids", self.some(ANY_SERVER, 2), 0.4),
            **self.maybe("tool_allowlist", self.some(PATTERNS), 0.25),
            **self.maybe("tool_denylist", self.some(PATTERNS[1:], 2), 0.25),
            **self.maybe("read_only", True, 0.1),
        }

    def filters(self) -> Plain:
        plenty = [*SERVERS] if self.chance(0.5) else self.some(ANY_SERVER, 4)
        return {
            **self.maybe("enabled_server_ids", plenty, 0.3),
            **self.maybe("tool_allowlist", self.some(PATTERNS), 0.25),
            **self.maybe("tool_denylist", self.some(PATTERNS[1:], 2), 0.25),
            **self.maybe("read_only", True, 0.1),
        }

    def user(self) -> Plain:
        return {
            **self.maybe("enabled", self.chance(0.5), 0.2),
            **self.maybe("groups", self.some(GROUPS, 2), 0.6),
            **self.maybe("own", self.filters(), 0.3),
            **self.filters(),
        }

    def case(self) -> Case:
        return Case(
            servers={server: self.server() for server in SERVERS if self.chance(0.85)},
            profiles={name: self.profile() for name in PROFILES if self.chance(0.8)},
            platform=self.maybe("tool_denylist", self.some(PATTERNS[1:], 2), 0.3),
            task=self.task() if self.chance(0.85) else None,
            session=self.session(),
            environment=self.rng.choice((None, *ENVIRONMENTS)),
            users={name: self.user() for name in PEOPLE if self.chance(0.85)},
            person=self.rng.choice((None, None, *PEOPLE)),
            acting=self.chance(0.3),
        )


def lists(items: Sequence[str], most: int = 4) -> st.SearchStrategy[list[str]]:
    return st.lists(st.sampled_from(items), max_size=most)


def record_of(**optional: st.SearchStrategy[Any]) -> st.SearchStrategy[Plain]:
    return st.fixed_dictionaries({}, optional=optional)


def servers() -> st.SearchStrategy[Plain]:
    return record_of(
        enabled=st.booleans(),
        tags=lists(TAGS, 2),
        allowed_tools=lists(PATTERNS),
        effects=st.fixed_dictionaries({"read": lists(PATTERNS[:6], 2)}),
    )


SELECTION: dict[str, st.SearchStrategy[Any]] = {
    "default_server_ids": lists(ANY_SERVER, 5),
    "allowed_server_ids": lists(ANY_SERVER, 5),
    "server_tags": lists(TAGS, 2),
    "tool_allowlist": lists(PATTERNS),
    "tool_denylist": lists(PATTERNS[1:], 2),
    "read_only": st.booleans(),
}


def selections() -> st.SearchStrategy[Plain]:
    return record_of(**SELECTION)


def profiles() -> st.SearchStrategy[Plain]:
    entries = st.dictionaries(st.sampled_from(ENVIRONMENTS), selections(), max_size=2)
    return record_of(**SELECTION, environments=entries)


def tasks() -> st.SearchStrategy[Plain]:
    return record_of(
        **SELECTION,
        enabled=st.booleans(),
        profile=st.sampled_from((*PROFILES, "gone")),
        profile_overrides=selections(),
        users=st.sampled_from(("records", "open")),
        allowed_groups=lists(GROUPS, 2),
    )


def sessions() -> st.SearchStrategy[Plain]:
    return record_of(
        enabled=st.booleans(),
        server_ids=lists(ANY_SERVER, 3),
        tool_allowlist=lists(PATTERNS),
        tool_denylist=lists(PATTERNS[1:], 2),
        read_only=st.booleans(),
    )


FILTERS: dict[str, st.SearchStrategy[Any]] = {
    "enabled_server_ids": lists(ANY_SERVER, 5),
    "tool_allowlist": lists(PATTERNS),
    "tool_denylist": lists(PATTERNS[1:], 2),
    "read_only": st.booleans(),
}


def users() -> st.SearchStrategy[Plain]:
    own = record_of(**FILTERS)
    return record_of(**FILTERS, enabled=st.booleans(), groups=lists(GROUPS, 2), own=own)


def cases() -> st.SearchStrategy[Case]:
    return st.builds(
        Case,
        servers=st.dictionaries(st.sampled_from(SERVERS), servers(), min_size=1, max_size=4),
        profiles=st.dictionaries(st.sampled_from(PROFILES), profiles(), max_size=2),
        platform=record_of(tool_denylist=lists(PATTERNS[1:], 2)),
        task=st.none() | tasks(),
        session=sessions(),
        environment=st.sampled_from((None, *ENVIRONMENTS)),
        users=st.dictionaries(st.sampled_from(PEOPLE), users(), max_size=2),
        person=st.none() | st.sampled_from(PEOPLE),
        acting=st.booleans(),
    )


def lively_cases() -> st.SearchStrategy[Case]:
    """Cases whose task is on and names its servers itself, so that most allow something.

    Here every source beyond the task's own keys can only narrow: with the defaults given, a
    profile or an override has nothing left to choose.
    """

    def opened(case: Case, default: list[str], more: list[str]) -> Case:
        task = (case.task or {}) | {
            "enabled": True,
            "default_server_ids": default,
            "allowed_server_ids": default + more,
        }
        task.pop("allowed_groups", None)
        servers = {
            s: r | {"enabled": True, "allowed_tools": ["*"]} for s, r in case.servers.items()
        }
        return Case(servers, case.profiles, case.platform, task, {}, case.environment)

    named = st.lists(st.sampled_from(SERVERS), min_size=1, max_size=4)
    return st.builds(opened, cases(), named, lists(SERVERS, 2))
