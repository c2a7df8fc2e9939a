"""One remote server over HTTP: its headers, certificates, redirects, and bodies with a limit."""

from __future__ import annotations

import datetime
import gzip
import ipaddress
import ssl
import tracemalloc
from collections.abc import AsyncIterator, Mapping, Set
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import BaseTestServer, TestServer
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from bascule.errors import LaunchDenied, MalformedReply, NotDelivered, ServerUnavailable
from bascule.model.secret_use import SecretUse, server_use
from bascule.model.server import Auth, Http, ServerRecord, Tls
from bascule.node.pool.transport.upstream import Upstream, open_upstream
from bascule.outbound.failures import Unanswered, Unconnected
from bascule.outbound.references import Reading
from bascule.outbound.rules import NodeRules
from bascule.outbound.url import Url

TOKEN = "glpat-0123456789abcdef"  # pragma: allowlist secret
MIB = 1024 * 1024


class Vault:
    """Secrets in a dictionary."""

    def __init__(self, **secrets: str) -> None:
        self._secrets = secrets

    async def secret(self, name: str, use: SecretUse) -> str:
        del use
        return self._secrets[name]


class Told:
    """What an upstream said must be hidden."""

    def __init__(self) -> None:
        self.known: set[str] = set()
        self.read: set[str] = set()

    def __call__(self, known: Set[str], read: Set[str]) -> None:
        self.known |= known
        self.read |= read


async def opened(
    http: Http, rules: NodeRules | None = None, told: Told | None = None, /, **environ: str
) -> Upstream:
    record = ServerRecord(server_id="r", transport="streamable_http", http=http)
    vault = Vault(token=TOKEN)
    reading = Reading(rules or NodeRules(), environ, vault, server_use(record))
    return await open_upstream(record, reading, learned=told or Told())


async def refusal(
    http: Http, rules: NodeRules | None = None, /, **environ: str
) -> ServerUnavailable:
    with pytest.raises(ServerUnavailable) as caught:
        await opened(http, rules, **environ)
    assert TOKEN not in str(caught.value)
    return caught.value


class Remote:
    """A server on loopback that notes what it is asked and answers as it is told."""

    def __init__(self, server: BaseTestServer) -> None:
        self.server = server
        self.requests: list[web.BaseRequest] = []
        self.ports: set[int] = set()
        self.answers: dict[str, tuple[int, bytes, Mapping[str, str]]] = {}

    async def answer(self, request: web.BaseRequest) -> web.Response:
        await request.read()
        self.requests.append(request)
        assert request.transport is not None
        self.ports.add(request.transport.get_extra_info("peername")[1])
        status, body, headers = self.answers.get(request.path, (200, b"hello", {}))
        return web.Response(status=status, body=body, headers=headers)

    def url(self, path: str = "/mcp") -> str:
        return str(self.server.make_url(path))

    def redirect(self, path: str, target: str, status: int = 307) -> None:
        self.answers[path] = (status, b"elsewhere", {"Location": target})

    @property
    def paths(self) -> list[str]:
        return [f"{request.method} {request.path}" for request in self.requests]


@pytest.fixture
async def remote() -> AsyncIterator[Remote]:
    app = web.Application()
    server = TestServer(app, host="127.0.0.1")
    remote = Remote(server)
    app.router.add_route("*", "/{path:.*}", remote.answer)
    async with server:
        yield remote


async def ask(upstream: Upstream, method: str = "POST", url: str | None = None) -> bytes:
    body = b"{}" if method == "POST" else None
    at = None if url is None else Url.parse(url)
    response = await upstream.send(method, body, await upstream.headers(), url=at)
    return await response.read(MIB)


# Headers and references


@pytest.mark.requirement("transport:headers", "transport:auth:bearer")
async def test_headers_and_the_credential_are_on_every_kind_of_request(remote: Remote):
    http = Http(url=remote.url(), headers={"X-Team": "blue"}, auth_ref="Bearer ${TOKEN}")
    upstream = await opened(http, TOKEN=TOKEN)
    for method in ("POST", "GET", "DELETE"):
        assert await ask(upstream, method) == b"hello"
    await upstream.close()
    assert remote.paths == ["POST /mcp", "GET /mcp", "DELETE /mcp"]
    for request in remote.requests:
        assert request.headers["X-Team"] == "blue"
        assert request.headers.getall("Authorization") == [f"Bearer {TOKEN}"]
        assert request.headers["User-Agent"].startswith("bascule/")
        assert "Accept-Encoding" not in request.headers


@pytest.mark.requirement("transport:auth:header")
async def test_a_header_credential_is_on_every_kind_of_request_as_it_is(remote: Remote):
    auth = Auth(type="header", ref="secret://token", header="X-Api-Key")
    upstream = await opened(Http(url=remote.url(), headers={"x-api-key": "old"}, auth=auth))
    for method in ("POST", "GET"):
        await ask(upstream, method)
    await upstream.close()
    assert [r.headers.getall("X-Api-Key") for r in remote.requests] == [[TOKEN], [TOKEN]]


async def test_what_the_transport_sets_itself_a_record_does_not(remote: Remote):
    headers = {"content-type": "text/plain", "Connection": "close", "MCP-Session-Id": "x"}
    upstream = await opened(Http(url=remote.url(), headers=headers | {"Mcp-Param-A": "1"}))
    assert await upstream.headers() == {}
    await upstream.close()


@pytest.mark.requirement("references:http:connect-time")
async def test_references_are_resolved_at_each_connect(remote: Remote):
    http = Http(url="${BASE}/mcp", headers={"X-Key": "${KEY}", "X-Mode": "a ${KEY:-b}"})
    for key in ("one-1", "two-2"):
        upstream = await opened(http, BASE=remote.url("").rstrip("/"), KEY=key)
        assert await upstream.headers() == {"X-Key": key, "X-Mode": f"a {key}"}
        assert str(upstream.url) == remote.url()
        assert upstream.origin == remote.url("").rstrip("/")
        await upstream.close()


async def test_credentials_are_known_and_other_references_are_not_written_down(remote: Remote):
    http = Http(
        url="${BASE}",
        headers={"X-Team": "${TEAM}", "Cookie": "${JAR}", "X-Api-Key": "${PLAIN}"},
        auth_ref="${LOGIN}",
    )
    variables = {"TEAM": "the-blue", "JAR": "c=12345", "PLAIN": "key-12345"}
    told = Told()
    variables |= {"BASE": remote.url(), "LOGIN": f"Bearer {TOKEN}"}
    upstream = await opened(http, None, told, **variables)
    secret = {"c=12345", "key-12345", f"Bearer {TOKEN}", TOKEN}
    assert told.known == secret
    assert told.read == secret | {"the-blue", remote.url()}
    assert TOKEN not in repr(upstream)
    await upstream.close()


@pytest.mark.parametrize(
    ("http", "complaint", "reason"),
    [
        (Http(url="${NONE}/mcp"), "http.url: the variable NONE is not set", "env_missing"),
        (Http(url="https://a.example", auth_ref="${NONE}"), "http.auth_ref: ", "env_missing"),
        (Http(url="https://a.example", auth_ref="secret://no"), "no secret", "env_missing"),
        (Http(url="https://a.example", headers={"X-A": "${EVIL}"}), "X-A: holds a line", None),
        (Http(url="https://a.example", auth_ref="${EVIL}"), "http.auth_ref: holds", None),
        (Http(url="${EMPTY}"), "http.url: is not a URL", None),
        (Http(url="https://10.1.2.3/"), '"10.1.2.3" to [node] egress', "launch_denied"),
        (Http(url="http://a.example/"), "insecure = true", "launch_denied"),
        (
            Http(url="https://a.example", auth=Auth(type="header", ref="${EMPTY}", header="X-A")),
            "http.auth.ref: is missing or empty",
            None,
        ),
        (
            Http(url="https://a.example", auth=Auth(type="header", ref="secret://token")),
            "http.auth.header: is missing",
            None,
        ),
        (
            Http(
                url="https://a.example",
                auth=Auth(type="oauth_client_credentials", ref="secret://token", client_id="a"),
            ),
            "http.auth.token_url: is missing",
            None,
        ),
    ],
)
async def test_a_record_that_cannot_be_used_names_the_field(
    http: Http, complaint: str, reason: str | None
):
    fault = await refusal(http, EVIL=f"a\r\nX: {TOKEN}", EMPTY="")
    assert complaint in str(fault)
    assert fault.reason == (reason or "unavailable")


async def test_a_variable_the_node_keeps_from_records_is_not_sent():
    rules = NodeRules(variables=())
    fault = await refusal(Http(url="https://a.example", auth_ref="${TOKEN}"), rules, TOKEN=TOKEN)
    assert isinstance(fault, LaunchDenied)
    assert 'add "TOKEN" to [node] variables' in str(fault)


# The session


@pytest.mark.requirement("transport:http:one-session")
async def test_one_connection_serves_request_after_request(remote: Remote):
    upstream = await opened(Http(url=remote.url()))
    for _ in range(5):
        await ask(upstream)
    await upstream.close()
    assert len(remote.ports) == 1
    with pytest.raises(NotDelivered, match="is closed"):
        await ask(upstream)


async def test_cookies_are_not_kept(remote: Remote):
    remote.answers["/mcp"] = (200, b"", {"Set-Cookie": "tracked=yes"})
    upstream = await opened(Http(url=remote.url()))
    await ask(upstream)
    await ask(upstream)
    await upstream.close()
    assert "Cookie" not in remote.requests[1].headers


async def test_proxies_of_the_environment_are_not_used(
    remote: Remote, monkeypatch: pytest.MonkeyPatch
):
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    upstream = await opened(Http(url=remote.url()))
    assert await ask(upstream) == b"hello"
    await upstream.close()


# Redirects


@pytest.mark.requirement("transport:egress:redirect")
async def test_a_redirect_within_the_origin_keeps_method_body_and_headers(remote: Remote):
    remote.redirect("/mcp", "/mcp/", status=308)
    remote.redirect("/mcp/", remote.url("/v2"), status=307)
    upstream = await opened(Http(url=remote.url(), auth_ref="token"))
    assert await ask(upstream) == b"hello"
    await upstream.close()
    assert remote.paths == ["POST /mcp", "POST /mcp/", "POST /v2"]
    last = remote.requests[-1]
    assert (await last.read(), last.headers["Authorization"]) == (b"{}", f"Bearer {TOKEN}")


@pytest.mark.requirement("transport:egress:redirect")
@pytest.mark.parametrize(
    "target",
    ["https://evil.example/", "//evil.example/", "http://169.254.169.254/", "http://[", "ftp:a"],
)
@pytest.mark.parametrize("method", ["POST", "GET"])
async def test_a_redirect_to_another_origin_is_refused(remote: Remote, target: str, method: str):
    remote.redirect("/mcp", target)
    upstream = await opened(Http(url=remote.url(), auth_ref="token"))
    with pytest.raises(ServerUnavailable, match="redirects to another origin"):
        await ask(upstream, method)
    await upstream.close()
    assert len(remote.requests) == 1


@pytest.mark.parametrize("status", [301, 302, 303])
async def test_a_redirect_that_would_lose_a_post_is_refused(remote: Remote, status: int):
    remote.redirect("/mcp", "/v2", status)
    upstream = await opened(Http(url=remote.url()))
    for method in ("POST", "DELETE"):
        with pytest.raises(ServerUnavailable, match=f"answers a {method} with a redirect"):
            await ask(upstream, method)
    assert await ask(upstream, "GET") == b"hello"
    await upstream.close()
    assert remote.paths == ["POST /mcp", "DELETE /mcp", "GET /mcp", "GET /v2"]


async def test_a_redirect_that_does_not_say_where_is_refused(remote: Remote):
    remote.redirect("/mcp", "")
    upstream = await opened(Http(url=remote.url()))
    with pytest.raises(ServerUnavailable, match="without saying where"):
        await ask(upstream)
    await upstream.close()


async def test_redirects_end_after_three(remote: Remote):
    for hop in range(5):
        remote.redirect(f"/{hop}", f"/{hop + 1}")
    upstream = await opened(Http(url=remote.url("/0")))
    with pytest.raises(ServerUnavailable, match="more than 3 times"):
        await ask(upstream)
    assert len(remote.requests) == 4
    assert await ask(upstream, url=remote.url("/2")) == b"hello"
    await upstream.close()


async def test_a_user_name_in_a_redirect_is_dropped(remote: Remote):
    remote.redirect("/mcp", remote.url("/v2").replace("://", "://eve:pw@"))
    upstream = await opened(Http(url=remote.url(), auth_ref="token"))
    assert await ask(upstream) == b"hello"
    await upstream.close()
    assert remote.requests[-1].headers["Authorization"] == f"Bearer {TOKEN}"


async def test_our_credential_is_not_carried_to_a_url_of_another_origin(remote: Remote):
    upstream = await opened(Http(url=remote.url(), auth_ref="token"))
    for url in ("https://evil.example/", remote.url().replace("http:", "https:")):
        with pytest.raises(ServerUnavailable, match="a URL outside"):
            await ask(upstream, url=url)
    await upstream.close()
    assert remote.requests == []


# Bodies


@pytest.mark.requirement("wire:decompressed-cap")
async def test_a_megabyte_that_becomes_a_gigabyte_costs_no_more_than_the_limit(remote: Remote):
    bomb = gzip.compress(bytes(MIB)) * 1024
    assert len(bomb) < 1.2 * MIB
    remote.answers["/mcp"] = (200, bomb, {"Content-Encoding": "gzip"})
    upstream = await opened(Http(url=remote.url()))
    response = await upstream.send("GET", None, {})
    tracemalloc.start()
    try:
        with pytest.raises(MalformedReply, match="over the limit"):
            await response.read(8 * MIB)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 16 * MIB  # a growing buffer may be copied once
    assert not response.connected
    await upstream.close()


# Certificates


class Authority:
    """A certificate authority for the length of a test."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, folder.name)])
        self.ca = self._write("ca.pem", self._signed(self._name, self._key, authority=True))

    def issue(self, name: str, password: bytes = b"") -> tuple[str, str]:
        """Return the files of a certificate for loopback and of its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        locked = (
            serialization.BestAvailableEncryption(password)
            if password
            else serialization.NoEncryption()
        )
        text = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, locked
        )
        (self._folder / f"{name}.key").write_bytes(text)
        certificate = self._write(f"{name}.pem", self._signed(subject, key, authority=False))
        return certificate, str(self._folder / f"{name}.key")

    def _signed(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, *, authority: bool
    ) -> x509.Certificate:
        today = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
        loopback = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(today)
            .not_valid_after(today + datetime.timedelta(days=36_500))
            .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName([loopback]), critical=False)
            .sign(self._key, hashes.SHA256())
        )

    def _write(self, name: str, certificate: x509.Certificate) -> str:
        path = self._folder / name
        path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        return str(path)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def serving(authority: Authority, *, ask_for_clients: bool = False) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.issue("server"))
    if ask_for_clients:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(authority.ca)
    return context


async def who(request: web.BaseRequest) -> web.Response:
    assert request.transport is not None
    certificate = request.transport.get_extra_info("peercert") or {}
    names = [value for part in certificate.get("subject", ()) for _, value in part]
    return web.Response(text=",".join(names) or "nobody")


async def answer_over_tls(context: ssl.SSLContext, tls: Tls | None, **environ: str) -> bytes:
    app = web.Application()
    app.router.add_post("/mcp", who)
    server = TestServer(app, host="127.0.0.1", scheme="https")
    await server.start_server(ssl=context)
    upstream = await opened(Http(url=str(server.make_url("/mcp")), tls=tls), **environ)
    try:
        return await ask(upstream)
    finally:
        await upstream.close()
        await server.close()


@pytest.mark.requirement("transport:tls:ca")
async def test_a_server_is_checked_against_the_records_own_authority(authority: Authority):
    context = serving(authority)
    assert await answer_over_tls(context, Tls(ca=authority.ca)) == b"nobody"
    assert await answer_over_tls(context, Tls(ca="${CA}"), CA=authority.ca) == b"nobody"


@pytest.mark.requirement("transport:tls:verified")
async def test_a_server_that_nobody_vouches_for_is_refused(authority: Authority, tmp_path: Path):
    with pytest.raises(Unconnected, match="certificate") as failed:
        await answer_over_tls(serving(authority), None)
    assert failed.value.why == "certificate"
    (tmp_path / "other").mkdir()
    other = Authority(tmp_path / "other")
    with pytest.raises(Unconnected, match="certificate"):
        await answer_over_tls(serving(authority), Tls(ca=other.ca))


@pytest.mark.requirement("transport:tls:client-certificate")
async def test_a_client_certificate_is_presented(authority: Authority):
    context = serving(authority, ask_for_clients=True)
    certificate, key = authority.issue("agent-7")
    tls = Tls(ca=authority.ca, client_certificate=certificate, client_key=key)
    assert await answer_over_tls(context, tls) == b"agent-7"
    with pytest.raises(Unanswered):
        await answer_over_tls(context, Tls(ca=authority.ca))


async def test_certificates_that_cannot_be_used_name_their_field(
    authority: Authority, tmp_path: Path
):
    certificate, _ = authority.issue("a")
    _, foreign = authority.issue("b")
    theirs, locked = authority.issue("c", password=b"hunter2")
    (tmp_path / "junk").write_text(TOKEN, encoding="utf-8")
    (tmp_path / "dir").mkdir()
    for tls, complaint in [
        (Tls(ca=str(tmp_path / "none")), "http.tls.ca: "),
        (Tls(ca="relative.pem"), "must name an absolute path"),
        (Tls(ca=str(tmp_path / "junk")), "holds no certificate"),
        (Tls(ca=str(tmp_path / "dir")), "is no regular file"),
        (Tls(client_certificate=certificate, client_key=foreign), "http.tls: "),
        (Tls(client_certificate=theirs, client_key=locked), "must have no password"),
        (Tls(client_key=foreign), "http.tls.client_key: needs a client_certificate"),
    ]:
        assert complaint in str(await refusal(Http(url="https://a.example", tls=tls)))


async def test_certificates_are_under_the_nodes_rule_for_files(authority: Authority):
    http = Http(url="https://a.example", tls=Tls(ca=authority.ca))
    fault = await refusal(http, NodeRules(files=()))
    assert isinstance(fault, LaunchDenied)
    assert "BASCULE_NODE_FILES" in str(fault)
    await (await opened(http, NodeRules(files=(authority.ca,)))).close()
