"""The pages of a Harvester: read with a credential that their user may get, for a few seconds, and said where it cannot be."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.stories.cluster_rig import ALL, a_cluster, a_pool
from tests.support.clock import run_driven
from tests.support.simulation import VIP, Simulation, simulation
from tests.unit.dashboard.conftest import Dashboard, a_dashboard, add_tenant

from windrow.app.harvester import inventory, reader
from windrow.app.harvester.inventory import (
    Usage,
    list_bounded,
    read_hosts,
    read_inventory,
    read_load_balancer,
    read_pool,
)
from windrow.app.harvester.reader import (
    AT_ONCE,
    PER_USER,
    READ_S,
    HarvesterReader,
    OpenHarvester,
    UnreadableHarvester,
)
from windrow.client.client import Client
from windrow.clusters.api.names import CREDENTIAL_KEY
from windrow.core.text import encode_base64
from windrow.harvester.names import LB_OF_CLUSTER, LB_OF_NAMESPACE, LB_OF_SERVICE
from windrow.harvester.resources import IP_POOL, LOAD_BALANCER
from windrow.kubernetes.objects import Raw, new_object
from windrow.kubernetes.requests import Reply, Request
from windrow.kubernetes.resources import CLUSTER_ROLE, NODE, SECRET

POOL = {
    "ranges": [{"subnet": "10.9.0.0/24", "rangeStart": "10.9.0.10", "rangeEnd": "10.9.0.19"}],
    "selector": {"network": "default/vlan-50", "scope": [{"project": "*", "namespace": "*", "guestCluster": "*"}]},
}  # fmt: skip
SECRET_PATH = "/harvesters/team-a/hv"


@asynccontextmanager
async def beside(sim: Simulation) -> AsyncIterator[Dashboard]:
    """A dashboard whose management API has the credential of the simulated Harvester in Secret team-a/hv."""
    async with a_dashboard(sim.connect) as dashboard:
        await add_tenant(dashboard.api, "team-a", user="ann", role="windrow-view")
        await put_kubeconfig(dashboard, sim.harvester.admin_kubeconfig(VIP))
        yield dashboard


async def put_kubeconfig(dashboard: Dashboard, text: str) -> None:
    raw = new_object(SECRET, "hv", "team-a", data={CREDENTIAL_KEY: encode_base64(text)})
    await Client(dashboard.api.local()).apply(SECRET.ref("hv", "team-a"), raw, "test", force=True)


def test_a_page_shows_what_the_harvester_has_and_who_holds_addresses() -> None:
    async def story() -> None:
        async with simulation(seed=3) as sim:
            documents = a_cluster(a_pool("servers", 1, ALL))
            await sim.apply(documents)
            await sim.harvester_client.create(IP_POOL, new_object(IP_POOL, "endpoints", spec=POOL))
            await sim.advance(minutes=10)
            async with beside(sim) as dashboard:
                browser = await dashboard.signed_in()

                page = (await browser.get(SECRET_PATH)).body.decode()

                assert "vlan-50" in page
                assert "default/jammy" in page
                assert "0 of 10 taken" in page
                assert "GiB" in page
                assert page.count('good">Ready<') == len(await sim.harvester_client.list(NODE))
                assert "windrow get hosts --credential team-a:hv" in page
                assert "hx-get" not in page.partition("<main")[2].partition(">")[0]  # nothing follows it

    run_driven(story())


def test_whether_the_user_may_get_the_secret_decides_what_is_shown() -> None:
    async def story() -> None:
        async with simulation(seed=3, with_manager=False) as sim, beside(sim) as dashboard:
            browser = await dashboard.signed_in("ann", ())

            page = (await browser.get(SECRET_PATH)).body.decode()

            assert "cannot get resource &#34;secrets&#34;" in page
            assert "Who may get this Secret sees its Harvester" in page
            assert VIP not in page

    run_driven(story())


REFUSED = {
    "exec": {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "/bin/touch"}},
    "tokenFile": {"tokenFile": "/etc/passwd"},
    "client-key": {"client-certificate-data": "LS0tLS1CRUdJTiA=", "client-key": "/root/.ssh/id"},
    "auth-provider": {"auth-provider": {"name": "gcp"}},
}


@pytest.mark.parametrize("named", REFUSED)
async def test_a_kubeconfig_that_names_programs_or_files_of_this_computer_is_refused(
    dashboard: Dashboard, named: str
) -> None:
    from windrow.core.formats.yaml import dump

    await add_tenant(dashboard.api, "team-a", user="ann")
    kubeconfig = {
        "clusters": [{"name": "c", "cluster": {"server": "https://192.0.2.1"}}],
        "users": [{"name": "u", "user": REFUSED[named]}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    }
    await put_kubeconfig(dashboard, dump(kubeconfig))

    page = (await (await dashboard.signed_in()).get(SECRET_PATH)).body.decode()

    assert named in page
    assert "Secret team-a:hv: " in page


async def test_a_secret_that_holds_no_kubeconfig_is_told_so(
    dashboard: Dashboard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "MAX_KUBECONFIG_LENGTH", 1000)
    await add_tenant(dashboard.api, "team-a", user="ann")
    browser = await dashboard.signed_in()
    assert (await browser.get(SECRET_PATH)).status == 404
    for text, told in ((" " * 1001, "at most"), ("a: [", "is not YAML")):
        await put_kubeconfig(dashboard, text)
        assert told in (await browser.get(SECRET_PATH)).body.decode()
    raw = new_object(SECRET, "hv", "team-a", data={CREDENTIAL_KEY: "/w=="})
    await Client(dashboard.api.local()).apply(SECRET.ref("hv", "team-a"), raw, "test", force=True)
    assert "is not base64 of a text" in (await browser.get(SECRET_PATH)).body.decode()


async def test_a_credential_is_chosen_by_its_cluster_or_named(dashboard: Dashboard) -> None:
    from tests.unit.dashboard.conftest import a_cluster as a_raw
    from tests.unit.dashboard.conftest import add_cluster

    for name, secret in (("one", "fleet-default:hv"), ("two", "hv"), ("three", "not/one")):
        raw = a_raw(name)
        raw["spec"]["cloudCredentialSecretName"] = secret
        condition = {"type": "CredentialValid", "status": "False" if name == "two" else "True", "reason": "Said", "message": "refused"}  # fmt: skip
        raw["status"] = {"conditions": [condition]}
        await add_cluster(dashboard.api, raw)
    browser = await dashboard.signed_in()

    page = (await browser.get("/harvesters")).body.decode()

    assert page.count('href="/harvesters/fleet-default/hv"') == 1
    assert page.count("/clusters/fleet-default/") == 2
    assert "refused" in page
    assert (await browser.get("/harvesters?credential=x/y:z")).status == 400
    assert (await browser.get("/harvesters?credential=fleet-default:hv")).status == 404
    assert 'href="/harvesters/fleet-default/hv"' in (await browser.get("/credentials")).body.decode()


# --- the bounds of what is read -----------------------------------------------------------------------------------------


class StuckTransport:
    """A server that never answers."""

    closed = 0

    async def send(self, request: Request) -> Reply:
        await asyncio.Event().wait()
        raise AssertionError

    def stream(self, request: Request) -> Any:
        raise AssertionError("nothing is watched")

    async def aclose(self) -> None:
        StuckTransport.closed += 1


async def first_list(found: OpenHarvester) -> Any:
    return await Client(found.transport).list(NODE)


def test_a_harvester_that_does_not_answer_is_waited_for_a_few_seconds_and_few_at_once() -> None:
    async def story() -> None:
        async with simulation(seed=3, with_manager=False) as sim, a_dashboard() as dashboard:
            await add_tenant(dashboard.api, "team-a", user="ann")
            await put_kubeconfig(dashboard, sim.harvester.admin_kubeconfig(VIP))
            harvesters = HarvesterReader(lambda config: StuckTransport())
            api, clock = Client(dashboard.api.local()), dashboard.clock
            began, StuckTransport.closed = clock.monotonic(), 0

            def read(user: str) -> asyncio.Task[Any]:
                return asyncio.ensure_future(harvesters.read(api, user, "team-a:hv", first_list))

            users = [f"user-{number // PER_USER}" for number in range(AT_ONCE)]
            waiting = [read(user) for user in users]
            await asyncio.sleep(0.1)
            for user in ("user-0", "another"):
                with pytest.raises(UnreadableHarvester, match="Other pages read"):
                    await read(user)
            answers = await asyncio.gather(*waiting, return_exceptions=True)

            assert all("has not answered within 5 s" in str(one) for one in answers)
            assert (clock.monotonic() - began).total_seconds() == pytest.approx(READ_S)
            assert StuckTransport.closed == AT_ONCE
            with pytest.raises(UnreadableHarvester, match="has not answered"):  # all have let go
                await read("another")

    run_driven(story())


def test_one_user_leaves_others_their_turn() -> None:
    async def story() -> None:
        async with simulation(seed=3, with_manager=False) as sim, a_dashboard() as dashboard:
            await add_tenant(dashboard.api, "team-a", user="ann")
            await put_kubeconfig(dashboard, sim.harvester.admin_kubeconfig(VIP))
            harvesters = HarvesterReader(lambda config: StuckTransport())
            api = Client(dashboard.api.local())
            mine = [
                asyncio.ensure_future(harvesters.read(api, "ann", "team-a:hv", first_list))
                for _ in range(PER_USER)
            ]
            await asyncio.sleep(0.1)

            with pytest.raises(UnreadableHarvester, match="Other pages"):
                await harvesters.read(api, "ann", "team-a:hv", first_list)
            with pytest.raises(UnreadableHarvester, match="has not answered"):
                await harvesters.read(api, "bob", "team-a:hv", first_list)
            await asyncio.gather(*mine, return_exceptions=True)

    run_driven(story())


def test_a_harvester_that_is_away_or_answers_nonsense_is_said() -> None:
    async def story() -> None:
        async with simulation(seed=3, with_manager=False) as sim, a_dashboard(sim.connect) as dashboard:
            await add_tenant(dashboard.api, "team-a", user="ann")
            await put_kubeconfig(dashboard, sim.harvester.admin_kubeconfig("https://192.0.2.7:6443"))
            page = (await (await dashboard.signed_in()).get(SECRET_PATH)).body.decode()
            assert "Harvester https://192.0.2.7:6443 cannot be read" in page

            async def nonsense(found: OpenHarvester) -> None:
                read_load_balancer({"metadata": {"name": "a"}, "status": {"address": 7}})

            harvesters = HarvesterReader(sim.connect)
            api = Client(dashboard.api.local())
            with pytest.raises(UnreadableHarvester, match="of another shape"):
                await harvesters.read(api, "ann", "team-a:hv", nonsense)

    run_driven(story())


def test_no_more_than_a_bound_is_read_of_each_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        monkeypatch.setattr(inventory, "MAX_OBJECTS", 2)
        async with simulation(seed=3, with_manager=False) as sim:
            client = sim.harvester_client
            exact = await list_bounded(client, NODE, "default")
            for number in range(3 - len(exact.items)):
                await client.create(NODE, new_object(NODE, f"more-{number}"))
            found = await list_bounded(client, NODE, "default")
            stock = await read_inventory(client, "default")

            assert (len(found.items), found.is_cut) == (2, True)
            assert stock.notes["hosts"] == "Only the first 2 are shown."

    run_driven(story())


def test_a_credential_of_one_namespace_sees_what_is_there() -> None:
    async def story() -> None:
        async with simulation(seed=3, with_manager=False) as sim:
            await add_tenant(sim.harvester.api, "team-a", user="ann", role="edit-balancers")
            listener = {"name": "web", "port": 80, "protocol": "TCP", "backendPort": 80}
            spec = {"workloadType": "vm", "ipam": "dhcp", "listeners": [listener]}
            balancer = new_object(LOAD_BALANCER, "lb", "team-a", spec=spec)
            await sim.harvester_client.create(LOAD_BALANCER, balancer)
            role = {
                **new_object(CLUSTER_ROLE, "edit-balancers"),
                "rules": [
                    {"apiGroups": [LOAD_BALANCER.group], "resources": ["loadbalancers"], "verbs": ["list"]}
                ],
            }
            await sim.harvester_client.create(CLUSTER_ROLE, role)

            found = await read_inventory(Client(sim.harvester.api.local("ann", ())), "team-a")

            assert [one.name for one in found.balancers] == ["lb"]
            assert "Only those of namespace team-a" in found.notes["balancers"]
            assert found.hosts == ()
            assert found.notes["hosts"].startswith("Not shown: ")
            assert found.notes["images"].startswith("Not shown: ")

    run_driven(story())


# --- readings -----------------------------------------------------------------------------------------------------------


def a_host(name: str, **spec: Any) -> Raw:
    ready = {"type": "Ready", "status": "True"}
    size = {"cpu": "16", "memory": "64Gi"}
    return {"metadata": {"name": name, "labels": {"topology.kubernetes.io/zone": "z1"}}, "spec": spec, "status": {"conditions": [ready], "allocatable": size}}  # fmt: skip


def a_vmi(host: str, **domain: Any) -> Raw:
    return {"metadata": {"name": "v"}, "spec": {"domain": domain}, "status": {"nodeName": host}}


def test_a_host_counts_what_its_vms_request_and_not_what_guests_see() -> None:
    overcommitted = a_vmi(
        "a",
        cpu={"cores": 4},
        memory={"guest": "8Gi"},
        resources={"requests": {"cpu": "250m", "memory": "4Gi"}},
    )
    plain = a_vmi("a", cpu={"cores": 2, "sockets": 2, "threads": 1}, memory={"guest": "8Gi"})
    nowhere = {"metadata": {"name": "w"}, "spec": {}}

    a, b = read_hosts([a_host("a"), a_host("b", unschedulable=True)], [overcommitted, plain, nowhere])

    assert (a.cpu, a.memory) == (
        Usage(4.25, 16, "4.25 of 16 CPUs"),
        Usage(12 * 2**30, 64 * 2**30, "12.0 of 64.0 GiB"),
    )
    assert (a.vms, a.zone, a.takes_vms, a.is_ready) == (2, "z1", True, True)
    assert (b.vms, b.cpu.used, b.takes_vms) == (0, 0, False)


@pytest.mark.parametrize("hostile", [{"cpu": "x", "memory": None}, {"cpu": 10**400}, None])
def test_amounts_that_are_none_count_nothing(hostile: Any) -> None:
    vmi = a_vmi("a", resources={"requests": hostile}, cpu={"cores": "8"})
    assert read_hosts([a_host("a")], [vmi])[0].vms == 1


def test_a_host_in_maintenance_says_of_what() -> None:
    host = a_host("a")
    host["metadata"]["annotations"] = {"harvesterhci.io/maintain-status": "completed"}
    assert read_hosts([host], [])[0].maintenance == "maintenance mode"


def test_a_pool_tells_who_holds_its_addresses() -> None:
    status = {"total": 10, "available": 8, "allocated": {"10.9.0.11": "default/b", "10.9.0.10": "default/a"}}
    pool = read_pool({"metadata": {"name": "p"}, "spec": POOL, "status": status})

    assert pool.addresses == Usage(2, 10, "2 of 10 taken")
    assert pool.held == (("10.9.0.10", "default/a"), ("10.9.0.11", "default/b"))
    assert pool.addresses.percent == 20


def test_a_pool_without_a_status_says_so() -> None:
    for status in ({}, {"total": "many", "available": -1, "allocated": []}):
        pool = read_pool({"metadata": {"name": "p"}, "spec": POOL, "status": status})
        assert (pool.addresses.text, pool.addresses.percent, pool.held) == ("not counted yet", 0, ())


def test_a_load_balancer_names_the_service_or_the_cluster_that_holds_it() -> None:
    labels = {LB_OF_CLUSTER: "prod", LB_OF_NAMESPACE: "shop", LB_OF_SERVICE: "web"}
    failed = {"type": "Ready", "status": "False", "message": "no address left"}
    of_service = {
        "metadata": {"name": "lb", "namespace": "default", "labels": labels},
        "status": {"address": "10.9.0.10", "conditions": [failed]},
    }
    of_cluster = {"metadata": {"name": "lb"}, "spec": {"description": "Control plane endpoint of Cluster a/b", "ipPool": "p"}}  # fmt: skip

    service, cluster = read_load_balancer(of_service), read_load_balancer(of_cluster)

    assert (service.holder, service.cluster, service.address) == ("Service shop/web", "prod", "10.9.0.10")
    assert service.problem == "no address left"
    assert (cluster.holder, cluster.pool, cluster.problem) == (
        "Control plane endpoint of Cluster a/b",
        "p",
        "",
    )
