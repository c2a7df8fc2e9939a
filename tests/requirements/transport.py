"""Transports to MCP servers: stdio, streamable HTTP and legacy SSE."""

from tests.requirements.model import NotPlanned, Requirement, Shown

ENTRIES = (
    Requirement(
        id="transport:stdio",
        text="A local server is reached as a subprocess over stdin and stdout.",
        source="seed 000, Goals",
        state=Shown(),
    ),
    Requirement(
        id="transport:stdio:noise",
        text="Lines on a server's stdout that are not protocol do not break the connection.",
        source="seed 000, Security and governance",
        state=Shown(),
    ),
    Requirement(
        id="transport:stdio:stderr",
        text="A server's stderr is drained and its last lines are kept for diagnosis.",
        source="seed 000, Security and governance",
        state=Shown(),
    ),
    Requirement(
        id="transport:stdio:env",
        text="A stdio server gets the variables its record names.",
        source="seed 003, Configuration",
        state=Shown(),
    ),
    Requirement(
        id="transport:streamable-http",
        text="A remote server is reached over streamable HTTP.",
        source="seed 000, Goals",
        state=Shown(),
    ),
    Requirement(
        id="transport:legacy-sse",
        text="A server of the legacy HTTP+SSE transport is reached.",
        source="seed 003, Transport Implementations",
        state=Shown(),
    ),
    Requirement(
        id="transport:protocol",
        text=(
            "A transport is one small Protocol that initialises, calls and closes, with a "
            "real and a fake implementation."
        ),
        source="seed 003, Transport Implementations",
        state=Shown(),
    ),
    Requirement(
        id="transport:egress:hosts",
        text="A remote server is reached only if the node's egress rules allow its host.",
        source="seed 000, Security and governance",
        state=Shown(),
    ),
    Requirement(
        id="transport:egress:private",
        text="Private, link-local and metadata addresses are refused unless listed.",
        source="DESIGN.md 4, References",
        state=Shown(),
    ),
    Requirement(
        id="transport:egress:resolved",
        text="Egress is checked on the resolved address and that address is used.",
        source="DESIGN.md 4, References",
        state=Shown(),
    ),
    Requirement(
        id="transport:egress:redirect",
        text=(
            "Egress is checked again at every redirect, and a redirect to another origin is "
            "refused."
        ),
        source="DESIGN.md 4, References",
        state=Shown(),
    ),
    Requirement(
        id="transport:plain-http",
        text=(
            "Plain http to a host that is not loopback is refused unless the record says "
            "`insecure`."
        ),
        source="DESIGN.md 4, References",
        state=Shown(),
    ),
    Requirement(
        id="transport:executables",
        text=(
            "A node starts only executables that its list allows, and the refusal names the "
            "setting to add."
        ),
        source="DESIGN.md 4, References",
        state=Shown(),
    ),
    Requirement(
        id="transport:executables:contained",
        text=(
            "An entry of `executables` is a program with any arguments but inline code, or a whole "
            "line; variables that load code are refused unless listed."
        ),
        source="DESIGN.md 4, References",
        state=Shown(),
    ),
    Requirement(
        id="transport:auth:bearer",
        text="Bearer authentication is sent on every kind of request, once prefixed with `Bearer`.",
        source="DESIGN.md 4, The record",
        state=Shown(),
    ),
    Requirement(
        id="transport:auth:header",
        text="Header authentication is sent on every kind of request.",
        source="DESIGN.md 4, The record",
        state=Shown(),
    ),
    Requirement(
        id="transport:auth:oauth",
        text="OAuth client credentials fetch a token, keep it while it is valid and renew it.",
        source="DESIGN.md 4, The record",
        state=Shown(),
    ),
    Requirement(
        id="transport:tls:ca",
        text="A record's CA file is what its server's certificate is checked against.",
        source="DESIGN.md 4, The record",
        state=Shown(),
    ),
    Requirement(
        id="transport:tls:client-certificate",
        text="A record's client certificate is presented to its server.",
        source="DESIGN.md 4, The record",
        state=Shown(),
    ),
    Requirement(
        id="transport:tls:verified",
        text="A remote server's certificate is verified by default.",
        source="seed 003, Security Considerations",
        state=Shown(),
    ),
    Requirement(
        id="transport:spiffe",
        text="Workload identities of SPIFFE/SPIRE serve as client certificates.",
        source="seed 003, Security Considerations",
        state=NotPlanned(
            "the seed calls it desirable through a spec that does not exist; a client "
            "certificate per record serves mTLS"
        ),
    ),
    Requirement(
        id="transport:headers",
        text="A record's headers are sent on every kind of request.",
        source="seed 003, Configuration",
        state=Shown(),
    ),
    Requirement(
        id="transport:http:one-session",
        text="One HTTP session and one TLS context serve each upstream and credential.",
        source="DESIGN.md 3, Decisions, with the reason",
        state=Shown(),
    ),
    Requirement(
        id="transport:http:both-generations",
        text="Streamable HTTP works with servers of both protocol generations.",
        source="DESIGN.md 3, Decisions, with the reason",
        state=Shown(),
    ),
    Requirement(
        id="transport:http:reconnect",
        text="A lost HTTP connection is reconnected with backoff.",
        source="seed 000, Connection pool",
        state=Shown(),
    ),
    Requirement(
        id="transport:http:session-lost",
        text=(
            "A lost HTTP session is opened anew without replaying a call that may have been "
            "delivered."
        ),
        source="DESIGN.md 4, At most once",
        state=Shown(),
    ),
    Requirement(
        id="transport:spawn-governed",
        text="A process is started only for a registered record.",
        source="seed 000, Non-goals",
        state=Shown(),
    ),
)
