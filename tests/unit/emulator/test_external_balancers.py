"""Load balancers of the user's own, in the simulated network."""

from __future__ import annotations

import asyncio

from tests.support.clock import run_driven
from tests.support.simulation import simulation

from windrow.core.formats.json import loads
from windrow.emulator.external_balancers import ExternalBalancers
from windrow.emulator.guest_cluster.kube_vip.service_handler import ServiceHandler
from windrow.emulator.guest_os.hardware import Nic
from windrow.emulator.kit.network import Network
from windrow.emulator.load_balancers.services import Backend
from windrow.kubernetes.handler import Peer
from windrow.kubernetes.requests import Request

NAME, PORT = "api.example", 6443


def a_machine(network: Network, address: str, port: int = PORT) -> None:
    """A machine that answers with its address."""
    pod = Backend(address, port, address, "default", address)
    network.listen(address, port, ServiceHandler({}, lambda: [pod], lambda: False, {}))


def answers(network: Network, times: int = 6) -> set[str]:
    """The machines that answer behind the name; none while the port is closed."""

    async def ask() -> str:
        handler = network.find(NAME, PORT)
        reply = await handler.send(Request("GET", "/"), Peer(address="10.0.0.99")) if handler else None
        return str(loads(reply.body)["pod"]) if reply else ""

    return {asyncio.run(ask()) for _ in range(times)} - {""}


def a_balancer(network: Network, *members: str) -> ExternalBalancers:
    balancers = ExternalBalancers(network, lambda line: None)
    balancers.set_members(NAME, PORT, members)
    return balancers


def test_it_passes_a_port_on_to_the_members_that_listen_there_as_they_come_and_go() -> None:
    network = Network()
    a_balancer(network, "10.0.0.1", "10.0.0.2")
    a_machine(network, "10.0.0.3")  # not a member
    a_machine(network, "10.0.0.1", PORT + 1)
    assert answers(network) == set()

    a_machine(network, "10.0.0.1")
    assert answers(network) == {"10.0.0.1"}
    a_machine(network, "10.0.0.2")
    assert answers(network) == {"10.0.0.1", "10.0.0.2"}
    network.close("10.0.0.1", PORT)
    assert answers(network) == {"10.0.0.2"}
    network.close("10.0.0.2", PORT)
    assert network.find(NAME, PORT) is None


def test_other_members_take_the_place_of_those_before() -> None:
    network = Network()
    a_machine(network, "10.0.0.1")
    a_machine(network, "10.0.0.2")
    balancers = a_balancer(network, "10.0.0.1")
    assert answers(network) == {"10.0.0.1"}

    balancers.set_members(NAME, PORT, ["10.0.0.2"])
    assert answers(network) == {"10.0.0.2"}
    balancers.set_members(NAME, PORT, [])
    assert answers(network) == set()


def test_a_name_resolves_from_the_start_and_refuses_connections_until_a_member_listens() -> None:
    network = Network()
    assert not network.has_host(NAME)
    a_balancer(network)

    assert network.has_host(NAME)
    assert network.find(NAME, PORT) is None


def test_an_address_that_a_machine_listens_on_stays_that_machine_s_and_the_log_says_so() -> None:
    network, log = Network(), list[str]()
    a_machine(network, NAME)
    a_machine(network, "10.0.0.1")
    balancers = ExternalBalancers(network, log.append)
    balancers.set_members(NAME, PORT, ["10.0.0.1"])

    assert answers(network) == {NAME}
    assert len(log) == 1
    assert f"{NAME}:{PORT} is announced twice" in log[0]


def test_the_address_of_a_balancer_is_leased_to_no_machine() -> None:
    async def story() -> list[str]:
        async with simulation(with_manager=False) as sim:
            await sim.harvester.preload(networks=["default/lan"])
            await sim.advance(seconds=1)
            sim.harvester.external_balancers.set_members("192.168.50.21", PORT, ())
            leases = (
                sim.harvester.vlans.lease(Nic("nic-0", f"02:00:00:00:00:0{number}", "default/lan"))
                for number in range(3)
            )
            return [lease.address for lease in leases if lease]

    assert run_driven(story()) == ["192.168.50.20", "192.168.50.22", "192.168.50.23"]
