"""A served Harvester over real sockets: TLS, client certificate, proxy, watches."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from tests.blank_machine import BlankMachine

from windrow.app.clock import SystemClock
from windrow.client.client import Client
from windrow.client.http_transport import HttpTransport
from windrow.core.rng import Rng
from windrow.emulator import kinds
from windrow.emulator.faults import DropReply, Fault
from windrow.emulator.harvester import Harvester
from windrow.emulator.proxy import ServedHarvester, serve
from windrow.kubernetes.errors import CertificateError, OutcomeUnknown, Unauthorized, Unreachable
from windrow.kubernetes.kubeconfig import parse_kubeconfig
from windrow.kubernetes.objects import new_object
from windrow.kubernetes.resources import CONFIG_MAP, NODE


@asynccontextmanager
async def a_served_harvester() -> AsyncIterator[tuple[Harvester, ServedHarvester]]:
    harvester = Harvester(
        SystemClock(),
        Rng(1),
        machine_factory=lambda hardware, wires: BlankMachine(hardware, wires),
        time_scale=100,
    )
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(harvester.run())
        async with serve(harvester) as served:
            yield harvester, served
        running.cancel()


@asynccontextmanager
async def a_client(kubeconfig: str) -> AsyncIterator[Client]:
    transport = HttpTransport(parse_kubeconfig(kubeconfig), SystemClock())
    try:
        yield Client(transport)
    finally:
        await transport.aclose()


async def test_the_administrators_kubeconfig_works_through_the_proxy():
    async with a_served_harvester() as (_, served), a_client(served.kubeconfig) as client:
        assert "proxy-url: http://127.0.0.1:" in served.kubeconfig
        assert sorted(node["metadata"]["name"] for node in await client.list(NODE)) == [
            "host-1",
            "host-2",
            "host-3",
        ]
        version = await client.get(kinds.SETTING.ref("server-version"))
        assert version["value"] == "v1.8.2"


async def test_the_vip_is_reached_through_the_proxy():
    async with a_served_harvester() as (harvester, served):
        kubeconfig = harvester.admin_kubeconfig(proxy_url=served.proxy_url)
        async with a_client(kubeconfig) as client:
            assert "192.168.100.10" in kubeconfig
            assert await client.list(NODE)


async def test_a_token_works_until_it_is_revoked():
    async with a_served_harvester() as (harvester, served):
        token = harvester.new_token()
        async with a_client(harvester.token_kubeconfig(token, served.url)) as client:
            assert await client.list(NODE)
            harvester.credentials.revoke(token)
            with pytest.raises(Unauthorized):
                await client.list(NODE)


async def test_an_address_without_a_server_is_refused_with_the_reason():
    async with a_served_harvester() as (harvester, served):
        kubeconfig = harvester.admin_kubeconfig("https://192.168.50.99:6443", served.proxy_url)
        async with a_client(kubeconfig) as client:
            with pytest.raises(Unreachable):
                await client.list(NODE)

        reader, writer = await asyncio.open_connection("127.0.0.1", served.proxy.port)
        writer.write(b"CONNECT 192.168.50.99:6443 HTTP/1.1\r\nHost: x\r\n\r\n")
        answer = (await reader.read()).decode()
        writer.close()
        assert answer.startswith("HTTP/1.1 502 ")
        assert "nothing listens on 192.168.50.99:6443 in the simulated network" in answer


async def test_the_proxy_leads_to_no_other_port_of_this_machine():
    async with a_served_harvester() as (_, served):
        other = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
        port = other.sockets[0].getsockname()[1]
        reader, writer = await asyncio.open_connection("127.0.0.1", served.proxy.port)
        writer.write(f"CONNECT 127.0.0.1:{port} HTTP/1.1\r\n\r\n".encode())
        assert (await reader.read()).startswith(b"HTTP/1.1 502 ")
        writer.close()
        other.close()


async def test_a_tunnel_breaks_when_its_door_closes():
    async with a_served_harvester() as (harvester, served):
        harvester.network.listen("192.168.50.20", 9345, harvester.api)
        kubeconfig = harvester.admin_kubeconfig("https://192.168.50.20:9345", served.proxy_url)
        reader, writer = await asyncio.open_connection("127.0.0.1", served.proxy.port)
        writer.write(b"CONNECT 192.168.50.20:9345 HTTP/1.1\r\n\r\n")
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")

        harvester.network.close("192.168.50.20", 9345)

        async with asyncio.timeout(5):
            assert await _ends(reader)
        writer.close()
        async with a_client(kubeconfig) as client:
            with pytest.raises(Unreachable):
                await client.list(NODE)


async def test_another_authority_is_not_trusted():
    async with (
        a_served_harvester() as (_, served),
        a_served_harvester() as (other, _),
        a_client(other.admin_kubeconfig(served.url)) as client,
    ):
        with pytest.raises(CertificateError):
            await client.list(NODE)


async def test_a_lost_answer_breaks_the_connection_after_the_write():
    async with a_served_harvester() as (harvester, served), a_client(served.kubeconfig) as client:
        fault = harvester.faults.add(Fault(DropReply(), frozenset({"create"}), times=1))
        raw = new_object(CONFIG_MAP, "c", "default")

        with pytest.raises(OutcomeUnknown):
            await client.create(CONFIG_MAP, raw)

        assert harvester.faults.times_injected(fault) == 1
        assert await client.get(CONFIG_MAP.ref("c", "default"))


async def _ends(reader: asyncio.StreamReader) -> bool:
    try:
        return await reader.read(1) == b""
    except ConnectionError:
        return True
