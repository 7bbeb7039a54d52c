"""A Service's address from outside of the process: through the emulator's proxy, with real sockets."""

from __future__ import annotations

import asyncio

from windrow.core.formats.json import loads
from windrow.emulator.guest_cluster.kube_vip.service_handler import ServiceHandler
from windrow.emulator.kit.network import Network
from windrow.emulator.load_balancers.services import Backend
from windrow.emulator.load_balancers.virtual_listeners import ProxyHandler, VirtualListeners
from windrow.emulator.proxy import Proxy

PLACE = ("192.168.50.200", 80)
POD = Backend("10.42.0.7", 8080, "web-0", "default", "one")


async def ask(proxy: Proxy, place: tuple[str, int]) -> tuple[int, str]:
    """Status and body of a plain GET through a tunnel; the proxy's own status where it refuses."""
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    try:
        where = f"{place[0]}:{place[1]}"
        writer.write(f"CONNECT {where} HTTP/1.1\r\nHost: {where}\r\n\r\n".encode())
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        if " 200 " not in head:
            return int(head.split()[1]), ""
        writer.write(f"GET / HTTP/1.1\r\nHost: {where}\r\nConnection: close\r\n\r\n".encode())
        head, _, body = (await reader.read()).decode().partition("\r\n\r\n")
        return (int(head.split()[1]), body) if head else (0, "")
    finally:
        writer.close()


async def test_a_request_reaches_a_ready_pod_and_is_refused_without_one():
    network, backends = Network(), [POD]
    listeners = VirtualListeners(network, lambda line: None)
    listeners.sync("web", {PLACE: lambda: ServiceHandler({}, lambda: backends, lambda: False, {})})
    async with Proxy(network) as proxy:
        status, body = await ask(proxy, PLACE)
        assert (status, loads(body)["pod"]) == (200, "web-0")

        backends.clear()
        assert await ask(proxy, PLACE) == (0, "")  # the connection closes without a reply

        listeners.sync("web", {})
        assert (await ask(proxy, PLACE))[0] == 502


async def test_a_balancer_of_machines_leads_to_the_machine():
    network = Network()
    network.listen("10.0.0.5", 8080, ServiceHandler({}, lambda: [POD], lambda: False, {}))
    network.listen(*PLACE, ProxyHandler(network, lambda: [Backend("10.0.0.5", 8080)]))
    async with Proxy(network) as proxy:
        status, body = await ask(proxy, PLACE)

    assert (status, loads(body)["pod"]) == (200, "web-0")
