"""Records of every kind, as plain values that are valid and as odd as the rules permit."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from bascule.model.kinds import Kind

Plain = dict[str, Any]
Values = st.SearchStrategy[Any]


def table(required: dict[str, Values], **optional: Values) -> st.SearchStrategy[Plain]:
    return st.fixed_dictionaries(required, optional=optional)


def many(items: Values, most: int = 3) -> Values:
    return st.lists(items, max_size=most)


WORDS = "abz019"
#: Text with everything that formats trip over: quotes, line ends, dollars and other scripts.
TEXT = st.text(st.sampled_from("aZ0 '\"\\\n\r\t#=[]{}.$é語\U0001f600\u2028\x7f"), max_size=8)
LITERALS = TEXT.map(lambda text: text.replace("$", "$$"))
ONE_LINE = LITERALS.map(lambda text: text.replace("\n", "").replace("\r", ""))
SERVER_IDS = st.from_regex(r"[a-z][a-z0-9-]{0,31}", fullmatch=True)
NAMES = st.from_regex(r"[A-Za-z][A-Za-z0-9_]{0,12}", fullmatch=True)
TAGS = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_.:/-]{0,10}", fullmatch=True)
PATTERNS = st.from_regex(r"[a-z*?][a-zA-Z0-9_.*?é-]{0,12}", fullmatch=True)
QUALIFIED = PATTERNS | st.builds("{}/{}".format, SERVER_IDS, PATTERNS)
BUDGET = st.integers(1, 3_600_000)
MODES = st.sampled_from(["never", "policy", "always"])
CONDITIONS = st.sampled_from(["args.path == '/etc'", "caller == 'alice'", "true", "size(tool) > 3"])
EMPTY_OR_TEXT = st.just("x") | TEXT.filter(bool)

STDIO = table(
    {"command": LITERALS.filter(bool)},
    args=many(LITERALS),
    env=st.dictionaries(NAMES, LITERALS | st.just("secret://x") | st.just("${ENV:X:-d}")),
    env_from=many(NAMES),
    cwd=EMPTY_OR_TEXT,
    home=st.sampled_from(["kept", "temporary"]),
)
HTTP = table(
    {"url": st.sampled_from(["https://example.org/mcp", "https://[2001:db8::1]:8443/a?b=c#d"])},
    headers=st.dictionaries(st.from_regex(r"[A-Za-z-]{1,9}", fullmatch=True), ONE_LINE),
    tls=table({}, ca=EMPTY_OR_TEXT),
    insecure=st.booleans(),
)
AUTH = st.sampled_from(
    [
        {"type": "bearer", "ref": "secret://t"},
        {"ref": "secret://t"},
        {"type": "header", "ref": "file:///t", "header": "X-Key"},
        {
            "type": "oauth_client_credentials",
            "ref": "${SECRET}",
            "token_url": "https://example.org/t",
            "client_id": "me",
            "scopes": ["a", "b"],
        },
    ]
)
PATHS = st.from_regex(r"/[a-z0-9/ é]{0,9}", fullmatch=True)
LIMITS: dict[str, Values] = {
    "memory_mb": st.integers(64, 1_048_576),
    "processes": st.integers(1, 100_000),
    "cpu_seconds": st.integers(1, 31_536_000),
    "open_files": st.integers(16, 1_048_576),
    "home_mb": st.integers(1, 1_048_576),
    "build": st.booleans(),
}
#: The levels and networks that go together.
BOUNDS = st.sampled_from(
    [
        {"level": "none"},
        {"level": "limits"},
        {"level": "limits", "required": True},
        {"level": "landlock", "network": "none"},
        {"level": "namespaces", "required": True, "network": "none"},
        {"level": "bwrap", "network": "egress", "hosts": ["api.example.org:443", "*.example.org"]},
        {"level": "best", "network": "egress", "hosts": ["api.example.org"], "required": True},
        {"level": "best", "network": "full"},
    ]
)


def _granting(bounds: Plain, limits: Plain, read: list[str], write: Plain) -> Plain:
    keeps_files = bounds["level"] not in ("none", "limits")
    return {**bounds, **limits, **write, **({"read": read} if keeps_files else {})}


SANDBOX = st.builds(
    _granting,
    BOUNDS,
    table({}, **LIMITS),
    many(PATHS | st.sampled_from([".", "~/data"])),
    table({}, write=many(PATHS | st.just("."))),
)
FLOOR = st.builds(lambda bounds, limits: bounds | limits, BOUNDS, table({}, **LIMITS))
RULES = many(
    table(
        {},
        tools=st.lists(QUALIFIED, min_size=1, max_size=2),
        when=CONDITIONS,
        effect=st.sampled_from(["require_approval", "deny", "allow"]),
    ),
    2,
)
COMMON: dict[str, Values] = {
    "version": st.just(1),
    "display_name": TEXT,
    "enabled": st.booleans(),
    "tags": many(TAGS),
    "tool_namespace": st.from_regex(r"[a-z][a-z0-9]{0,5}(\.[a-z0-9-]{1,6}){0,3}", fullmatch=True),
    "allowed_tools": many(PATTERNS),
    "sharing": st.sampled_from(["shared", "task", "user", "session"]),
    "prewarm": st.booleans(),
    "effects": table({}, read=many(PATTERNS), idempotent=many(PATTERNS)),
    "budgets": table(
        {},
        connect_timeout_ms=BUDGET,
        start_timeout_ms=BUDGET,
        list_timeout_ms=BUDGET,
        tool_timeout_ms=BUDGET,
        max_concurrency=st.integers(1, 10_000),
        max_tool_output_bytes=BUDGET,
    ),
    "approval_policy": table(
        {}, default=MODES, per_tool=st.dictionaries(PATTERNS, MODES, max_size=3), rules=RULES
    ),
    "hygiene": table(
        {},
        leaks=st.sampled_from(["off", "mask", "block"]),
        redact=st.sampled_from(["shape", "full"])
        | st.fixed_dictionaries({"keys": many(EMPTY_OR_TEXT)}),
    ),
}


def _with_auth(http: Plain, auth: Plain | None, *, by_ref: bool) -> Plain:
    if auth is None:
        return http
    return http | ({"auth_ref": "secret://token"} if by_ref else {"auth": auth})


SERVERS = table(
    {"server_id": SERVER_IDS, "transport": st.just("stdio"), "stdio": STDIO},
    sandbox=SANDBOX,
    **COMMON,
)
REMOTES = table(
    {
        "server_id": SERVER_IDS,
        "transport": st.sampled_from(["streamable_http", "http_sse_legacy", "http", "sse"]),
        "http": st.builds(_with_auth, HTTP, st.none() | AUTH, by_ref=st.booleans()),
    },
    **COMMON,
)
SELECTION: dict[str, Values] = {
    "default_server_ids": many(SERVER_IDS),
    "allowed_server_ids": many(SERVER_IDS),
    "server_tags": many(TAGS),
    "tool_allowlist": many(QUALIFIED),
    "tool_denylist": many(QUALIFIED),
    "read_only": st.booleans(),
}
POLICIES = table(
    {},
    **SELECTION,
    enabled=st.booleans(),
    profile=NAMES,
    profile_overrides=table({}, **SELECTION),
    users=st.sampled_from(["records", "open"]),
    allowed_groups=many(NAMES),
    user_from_request=st.booleans(),
)
#: What JSON and TOML can both say; TOML has no null.
JSON = st.recursive(
    st.booleans() | st.integers(-(2**53), 2**53) | st.floats(-1e9, 1e9) | TEXT,
    lambda inner: many(inner) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
CONFIG = st.dictionaries(TEXT.filter(lambda key: not key.startswith("mcp.")), JSON, max_size=3)
TASKS = table(
    {"task_id": NAMES},
    version=st.just(1),
    name=TEXT,
    description=TEXT,
    mcp=POLICIES,
    config=CONFIG,
    executable=table(
        {"path": EMPTY_OR_TEXT},
        type=st.just("wasm"),
        checksum_sha256=st.just("0123456789abcdef" * 4),
        args=many(TEXT),
        env=st.dictionaries(NAMES, TEXT, max_size=2),
    ),
)
PROFILES = table(
    {"name": NAMES},
    description=TEXT,
    **SELECTION,
    environments=st.dictionaries(TEXT, table({}, **SELECTION), max_size=2),
)
PLATFORMS = table(
    {},
    version=st.just(1),
    tool_denylist=many(QUALIFIED),
    default_approval=MODES,
    rules=RULES,
    ceilings=table({}, tool_timeout_ms=BUDGET, max_concurrency=BUDGET),
    sandbox=FLOOR,
)
BACKENDS = table(
    {"name": st.from_regex(r"[a-z0-9][a-z0-9_.-]{0,9}", fullmatch=True)}
    | {"base_url": st.just("https://example.org/v1")},
    enabled=st.booleans(),
    key_ref=st.just("secret://k"),
    headers=st.dictionaries(st.just("X-A"), ONE_LINE),
    models=many(EMPTY_OR_TEXT),
    request_timeout_ms=BUDGET,
)
FILTERS: dict[str, st.SearchStrategy[Any]] = {
    "enabled_server_ids": many(SERVER_IDS),
    "read_only": st.booleans(),
    "tool_allowlist": many(QUALIFIED),
    "tool_denylist": many(QUALIFIED),
}
USERS = table(
    {"user_id": NAMES},
    version=st.just(1),
    display_name=TEXT,
    enabled=st.booleans(),
    groups=many(NAMES),
    own=table({}, **FILTERS),
    **FILTERS,
)
SESSIONS = table(
    {},
    enabled=st.booleans(),
    server_ids=many(SERVER_IDS),
    tool_allowlist=many(QUALIFIED),
    tool_denylist=many(QUALIFIED),
    read_only=st.booleans(),
)
BY_KIND: dict[Kind, st.SearchStrategy[Plain]] = {
    "server": SERVERS | REMOTES,
    "task": TASKS,
    "profile": PROFILES,
    "platform": PLATFORMS,
    "backend": BACKENDS,
    "user": USERS,
}
