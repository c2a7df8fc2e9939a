"""The gRPC port: who is let in, TLS, health and reflection, and how it ends."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc import aio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from bascule.asgi.serve import CannotServe, NeedsTls, Tls
from bascule.control.rpc.port import MAX_MESSAGE_BYTES, RpcPort
from bascule.control.rpc.registry import NAME, RegistryRpc
from bascule.wire.pb import registry_pb2
from tests.control.rpc.counter import RpcCounter, open_counter
from tests.outbound.authority import Authority
from tests.waits import SOON_SECONDS

STATUS = grpc.StatusCode


async def refused(counter: RpcCounter, *metadata: tuple[str, str]) -> grpc.StatusCode:
    """Return the status of a list that is asked for with metadata."""
    assert counter.channel is not None
    call = counter.channel.unary_unary(f"/{NAME}/ListMcpServers")
    with pytest.raises(aio.AioRpcError) as error:
        await call(b"", metadata=aio.Metadata(*metadata), timeout=SOON_SECONDS)
    return error.value.code()


async def test_a_call_needs_one_valid_token(counter: RpcCounter):
    token = f"Bearer {counter.given['admin']}"
    assert await refused(counter) is STATUS.UNAUTHENTICATED
    assert await refused(counter, ("authorization", "Basic eDp5")) is STATUS.UNAUTHENTICATED
    assert await refused(counter, ("authorization", token + "x")) is STATUS.UNAUTHENTICATED
    twice = ("authorization", token), ("authorization", token)
    assert await refused(counter, *twice) is STATUS.UNAUTHENTICATED
    assert {one.code for one in counter.turned_away} == {"unauthenticated"}
    assert counter.turned_away[0].path == f"/{NAME}/ListMcpServers"


async def test_bytes_that_are_no_message_and_too_many_of_them_are_refused(counter: RpcCounter):
    assert counter.channel is not None
    call = counter.channel.unary_unary(f"/{NAME}/UpsertMcpServer")
    metadata = counter.metadata("admin")
    for body, status in (
        (b"\xff\xff", STATUS.INVALID_ARGUMENT),
        (b"\x0a" + bytes(MAX_MESSAGE_BYTES), STATUS.RESOURCE_EXHAUSTED),
    ):
        with pytest.raises(aio.AioRpcError) as error:
            await call(body, metadata=metadata, timeout=SOON_SECONDS)
        assert error.value.code() is status
    assert (await counter.ask("ListMcpServers")).revision == 0


@pytest.mark.requirement("registry:grpc:health")
async def test_health_and_reflection_answer_without_a_token(counter: RpcCounter):
    assert counter.channel is not None
    health: Any = health_pb2_grpc.HealthStub(counter.channel)
    for name in "", NAME:
        found = await health.Check(health_pb2.HealthCheckRequest(service=name))
        assert found.status == health_pb2.HealthCheckResponse.SERVING
    stub: Any = reflection_pb2_grpc.ServerReflectionStub
    reflection = stub(counter.channel)
    asked = [
        reflection_pb2.ServerReflectionRequest(list_services=""),
        reflection_pb2.ServerReflectionRequest(file_containing_symbol=NAME),
    ]
    listed, described = [one async for one in reflection.ServerReflectionInfo(iter(asked))]
    assert NAME in {one.name for one in listed.list_services_response.service}
    assert any(
        b"WatchMcpServers" in one
        for one in described.file_descriptor_response.file_descriptor_proto
    )


async def test_without_tls_only_loopback_is_served(counter: RpcCounter):
    service = RegistryRpc(counter.service).service()
    with pytest.raises(NeedsTls):
        async with RpcPort([service], counter.guard, "0.0.0.0"):  # noqa: S104 - it is refused
            pass
    async with RpcPort([service], counter.guard) as port:
        with pytest.raises(CannotServe, match=str(port.port)):
            async with RpcPort([service], counter.guard, port=port.port):
                pass


async def test_a_port_that_ends_tells_those_who_watch_to_go_elsewhere(counter: RpcCounter):
    service = RegistryRpc(counter.service).service()
    async with RpcPort([service], counter.guard) as port:
        counter.channel = aio.insecure_channel(f"127.0.0.1:{port.port}")
        watch = counter.watch("WatchMcpServers")
        await watch.begun()
    async with counter.channel:
        assert (await watch.refusal()).status is STATUS.UNAVAILABLE


# --- TLS


@asynccontextmanager
async def served(
    folder: Path, *, clients: bool = False
) -> AsyncGenerator[tuple[RpcCounter, Authority, Tls], None]:
    authority = Authority(folder)
    certificate = authority.issue("server", "127.0.0.1")
    tls = Tls(certificate=certificate, key=certificate, client_ca=authority.ca if clients else None)
    async with open_counter(tls=tls) as counter:
        yield counter, authority, tls


async def listed(counter: RpcCounter, credentials: grpc.ChannelCredentials) -> Any:
    target = f"127.0.0.1:{counter.port}"
    async with aio.secure_channel(target, credentials) as channel:
        call = channel.unary_unary(
            f"/{NAME}/ListMcpServers",
            response_deserializer=registry_pb2.ListMcpServersResponse.FromString,
        )
        return await call(b"", metadata=counter.metadata("node"), timeout=SOON_SECONDS)


def trusting(authority: Authority, certificate: str | None = None) -> grpc.ChannelCredentials:
    pem = None if certificate is None else Path(certificate).read_bytes()
    return grpc.ssl_channel_credentials(Path(authority.ca).read_bytes(), pem, pem)


def issued(authority: Authority) -> bytes:
    return Path(authority.issue("server", "127.0.0.1")).read_bytes()


def put(pem: bytes, tls: Tls) -> None:
    Path(tls.certificate).write_bytes(pem)


@pytest.mark.requirement("registry:grpc:tls")
async def test_the_certificate_is_read_anew_without_a_restart(tmp_path: Path):
    async with served(tmp_path) as (counter, authority, tls):
        assert (await listed(counter, trusting(authority))).revision == 0
        (tmp_path / "new").mkdir()
        another = Authority(tmp_path / "new")
        put(issued(another), tls)
        assert (await listed(counter, trusting(another))).revision == 0
        with pytest.raises(aio.AioRpcError) as error:
            await listed(counter, trusting(authority))
        assert error.value.code() is STATUS.UNAVAILABLE
        put(b"nonsense", tls)
        assert (await listed(counter, trusting(another))).revision == 0


@pytest.mark.requirement("registry:grpc:tls")
async def test_a_certificate_that_names_a_node_is_good_for_its_token_alone(tmp_path: Path):
    async with served(tmp_path, clients=True) as (counter, authority, _):
        own = authority.issue("own", "spiffe://bascule/node/node")
        assert (await listed(counter, trusting(authority, own))).revision == 0
        other = authority.issue("other", "spiffe://bascule/node/other")
        with pytest.raises(aio.AioRpcError) as error:
            await listed(counter, trusting(authority, other))
        assert error.value.code() is STATUS.PERMISSION_DENIED
        assert "'other'" in (error.value.details() or "")
        with pytest.raises(aio.AioRpcError) as error:
            await listed(counter, trusting(authority))
        assert error.value.code() is STATUS.UNAVAILABLE
