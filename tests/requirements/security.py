"""Who may do what: tokens, roles, secrets and the committed limits."""

from tests.requirements.model import Deferred, Requirement, Shown, Work

ENTRIES = (
    Requirement(
        id="security:deny-by-default",
        text="With nothing configured, nothing is enabled.",
        source="seed 000, Security and governance",
        state=Shown(),
    ),
    Requirement(
        id="security:secrets:store",
        text="Credentials are kept in the secret store and referred to by name.",
        source="seed 000, Security and governance",
        state=Deferred(Work.APPROVALS),
    ),
    Requirement(
        id="security:secrets:never-returned",
        text="No read returns a secret.",
        source="DESIGN.md 3, Decisions, with the reason",
        state=Deferred(Work.APPROVALS),
    ),
    Requirement(
        id="security:secrets:encrypted",
        text="A secret is encrypted at rest and bound to its name and version.",
        source="DESIGN.md 3, Decisions, with the reason",
        state=Deferred(Work.APPROVALS),
    ),
    Requirement(
        id="security:one-bridge:imports",
        text="The import rules let nothing but the bridge reach the pool.",
        source="DESIGN.md 1, One bridge, many doors",
        state=Shown(),
    ),
    Requirement(
        id="security:own-files",
        text="No record reads the data directory or the running system's files, however spelled.",
        source="DESIGN.md 4, References",
        state=Shown(),
    ),
    Requirement(
        id="security:own-variables",
        text="No record reads a variable whose name begins with `BASCULE_`.",
        source="DESIGN.md 4, References",
        state=Shown(),
    ),
    Requirement(
        id="security:lists-close-one-another",
        text="Setting one of `variables`, `executables` and `files` closes the other two.",
        source="DESIGN.md 4, References",
        state=Shown(),
    ),
    Requirement(
        id="security:pairs",
        text=(
            "A credential reference goes only to a host or a command line that an administrator "
            "wrote it for; an operator's write of a new pair is refused and names it."
        ),
        source="DESIGN.md 4, References",
        state=Shown(),
    ),
    Requirement(
        id="security:auth:required",
        text="Every endpoint but a committed list needs a token.",
        source="seed 000, Web Admin: registry management tab",
        state=Shown(),
    ),
    Requirement(
        id="security:auth:roles",
        text="A token may do what its role allows, and nothing else.",
        source="seed 000, Web Admin: registry management tab",
        state=Shown(),
    ),
    Requirement(
        id="security:auth:client-task",
        text="A client token is bound to its task.",
        source="DESIGN.md 4, Default deny",
        state=Shown(),
    ),
    Requirement(
        id="security:tokens:digest",
        text="Tokens are stored as keyed digests only.",
        source="DESIGN.md 4, Last known good",
        state=Shown(),
    ),
    Requirement(
        id="security:registry-mutation",
        text="A guest cannot change the registry.",
        source="seed 000, Optional hostcalls",
        state=Deferred(Work.HOSTCALLS),
    ),
    Requirement(
        id="security:no-arbitrary-spawn",
        text="A guest cannot name a command to start.",
        source="seed 000, Non-goals",
        state=Deferred(Work.HOSTCALLS),
    ),
    Requirement(
        id="security:registered-only",
        text="A server that is not registered cannot be called.",
        source="seed 002, Security and compliance",
        state=Shown(),
    ),
    Requirement(
        id="security:no-credentials-in-logs",
        text="Configured env and header values never appear in logs, events, errors or `repr`.",
        source="seed 004, Environment Variables",
        state=Shown(),
    ),
    Requirement(
        id="security:untrusted-results",
        text="A server's results, descriptions and annotations change no decision.",
        source="seed 003, Security Considerations",
        state=Shown(),
    ),
    Requirement(
        id="security:origin",
        text="Requests with a foreign Host or Origin are refused.",
        source="DESIGN.md 2, Flow and layout",
        state=Shown(),
    ),
    Requirement(
        id="security:connections:unread-body",
        text="An answer sent before the body was read closes the connection, whatever still comes.",
        source="DESIGN.md 2, Flow and layout",
        state=Shown(),
    ),
    Requirement(
        id="security:connections:strangers",
        text="Of one address only so many connections stay that have shown no valid token.",
        source="DESIGN.md 2, Flow and layout",
        state=Shown(),
    ),
    Requirement(
        id="security:connections:flood",
        text="A flood of half requests keeps neither health checks nor callers with a token out.",
        source="DESIGN.md 2, Flow and layout",
        state=Shown(),
    ),
    Requirement(
        id="security:connections:health",
        text="Places are kept for health checks when all others are taken.",
        source="DESIGN.md 2, Flow and layout",
        state=Shown(),
    ),
    Requirement(
        id="security:data-directory:impostor",
        text=(
            "A command shows no token to an address of the data directory before whoever answers "
            "there has proved to hold its lock."
        ),
        source="DESIGN.md 2, Flow and layout",
        state=Shown(),
    ),
)
