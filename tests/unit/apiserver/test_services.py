"""Cluster addresses, node ports and the rules of Services. That they are a real server's is judged in conformance."""

from __future__ import annotations

from typing import Any

import pytest

from windrow.apiserver.server import ApiServer
from windrow.apiserver.services.allocation import ServiceRanges
from windrow.apiserver.storage import MemoryStore
from windrow.core.rng import Rng
from windrow.kubernetes.errors import Invalid, KubeError
from windrow.kubernetes.objects import new_object
from windrow.kubernetes.resources import SERVICE

from .conftest import FrozenClock
from .service_cases import BOTH, LB, NAMED, WEB

Raw = dict[str, Any]


class Rig:
    def __init__(self, store: MemoryStore | None = None, **ranges: Any) -> None:
        self.store = store or MemoryStore()
        self.server = ApiServer(self.store, FrozenClock(), Rng(1), services=ServiceRanges(**ranges))
        self.local = self.server.local()

    async def make(self, name: str = "web", **spec: Any) -> Raw:
        made = await self.local.create(SERVICE, new_object(SERVICE, name, "default", spec=spec or LB))
        return dict(made["spec"])

    async def put(self, name: str = "web", **spec: Any) -> Raw:
        made = await self.local.update(SERVICE, new_object(SERVICE, name, "default", spec=spec))
        return dict(made["spec"])

    async def drop(self, name: str = "web") -> None:
        await self.local.delete(SERVICE.ref(name, "default"))


async def test_a_load_balancer_has_an_address_a_family_and_a_node_port() -> None:
    spec = await Rig().make()

    assert spec["clusterIPs"] == [spec["clusterIP"]]
    assert spec["clusterIP"].startswith("10.43.")
    assert (spec["ipFamilies"], spec["ipFamilyPolicy"]) == (["IPv4"], "SingleStack")
    assert 30086 <= spec["ports"][0]["nodePort"] <= 32767
    assert spec["ports"][0]["targetPort"] == 80
    assert spec["allocateLoadBalancerNodePorts"] is True


async def test_no_node_ports_where_they_are_not_wanted() -> None:
    spec = await Rig().make(**LB, allocateLoadBalancerNodePorts=False)

    assert "nodePort" not in spec["ports"][0]


async def test_a_port_of_two_protocols_has_one_node_port() -> None:
    spec = await Rig().make(type="NodePort", ports=BOTH)

    assert spec["ports"][0]["nodePort"] == spec["ports"][1]["nodePort"]


async def test_a_local_load_balancer_has_a_port_for_health_checks_and_loses_it_with_the_policy() -> None:
    rig = Rig()
    spec = await rig.make(**LB, externalTrafficPolicy="Local")

    assert spec["healthCheckNodePort"] not in (0, spec["ports"][0]["nodePort"])
    assert "healthCheckNodePort" not in await rig.put(**{**spec, "externalTrafficPolicy": "Cluster"})


async def test_a_service_that_is_sent_again_keeps_what_it_was_given() -> None:
    rig = Rig()

    assert await rig.make() == await rig.put(**LB)


async def test_a_status_update_gives_nothing() -> None:
    rig = Rig()
    raw = await rig.local.create(
        SERVICE,
        new_object(SERVICE, "n", "default", spec={"type": "ExternalName", "externalName": "a.example"}),
    )
    raw["status"] = {"loadBalancer": {}}
    raw["spec"] = dict(LB)
    changed = await rig.local.update(SERVICE, raw, "status")

    assert changed["spec"] == {"type": "ExternalName", "externalName": "a.example", "sessionAffinity": "None"}


async def test_no_two_services_share_an_address_or_a_node_port() -> None:
    rig = Rig(addresses=("10.43.0.0/26",), node_ports=(30000, 30039))
    specs = [await rig.make(f"s-{number}") for number in range(40)]

    assert len({spec["clusterIP"] for spec in specs}) == 40
    assert len({spec["ports"][0]["nodePort"] for spec in specs}) == 40


async def test_a_full_range_is_an_error_until_a_service_is_deleted() -> None:
    rig = Rig(addresses=("10.43.0.0/29",))
    first = await rig.make("s-0")
    for number in range(1, 5):
        await rig.make(f"s-{number}")
    with pytest.raises(KubeError, match='failed to allocate a serviceIP for Service "late": range is full'):
        await rig.make("late")
    await rig.drop("s-0")

    assert (await rig.make("late"))["clusterIP"] == first["clusterIP"]


async def test_what_fell_away_with_a_change_of_type_is_free_at_once() -> None:
    rig = Rig()
    spec = await rig.make(type="NodePort", ports=[{"port": 80, "nodePort": 30005}])
    with pytest.raises(Invalid, match="provided port is already allocated"):
        await rig.make("other", type="NodePort", ports=[{"port": 80, "nodePort": 30005}])
    plain = await rig.put(**{**spec, "type": "ClusterIP"})
    other = await rig.make("other", type="NodePort", ports=[{"port": 80, "nodePort": 30005}])

    assert "nodePort" not in plain["ports"][0]
    assert other["ports"][0]["nodePort"] == 30005


async def test_a_service_that_could_not_be_made_holds_nothing() -> None:
    rig = Rig()
    asked = {"clusterIP": "10.43.3.3", "ports": [WEB]}
    bad = new_object(SERVICE, "bad", "default", labels={"-": "no label"}, spec=asked)
    with pytest.raises(Invalid):
        await rig.local.create(SERVICE, bad)

    assert (await rig.make("good", **asked))["clusterIP"] == "10.43.3.3"


async def test_a_restarted_server_loads_the_allocations() -> None:
    store = MemoryStore()
    asked = {"clusterIP": "10.43.3.3", "type": "NodePort", "ports": [{"port": 80, "nodePort": 30005}]}
    await Rig(store).make("old", **asked)
    later = Rig(store)

    with pytest.raises(Invalid, match="provided IP is already allocated"):
        await later.make("new", **asked)


async def test_two_families_give_two_addresses_where_the_service_wants_them() -> None:
    rig = Rig(addresses=("10.43.0.0/16", "fd00:43::/112"))
    both = await rig.make(ports=[WEB], ipFamilyPolicy="PreferDualStack")
    one = await rig.put(**{**both, "ipFamilyPolicy": "SingleStack"})
    sixth = await rig.make("sixth", ports=[WEB], ipFamilies=["IPv6"])

    assert both["ipFamilies"] == ["IPv4", "IPv6"]
    assert both["clusterIPs"][1].startswith("fd00:43::")
    assert one["clusterIPs"] == both["clusterIPs"][:1]
    assert sixth["clusterIP"].startswith("fd00:43::")


async def test_a_dry_run_allocates_nothing() -> None:
    rig = Rig(addresses=("10.43.0.0/29",))
    for _ in range(9):
        await rig.server.handle(_rehearsal(), rig.local.user)

    assert [await rig.make(f"s-{number}") for number in range(5)]


def _rehearsal() -> Any:
    from windrow.core.formats.fastjson import dumps
    from windrow.kubernetes.requests import Request

    raw = new_object(SERVICE, "try", "default", spec={"ports": NAMED})
    return Request("POST", SERVICE.path("default"), (("dryRun", "All"),), dumps(raw))


async def test_without_ranges_a_service_is_not_changed() -> None:
    server = ApiServer(MemoryStore(), FrozenClock(), Rng(1))
    made = await server.local().create(SERVICE, new_object(SERVICE, "web", "default", spec=LB))

    assert "clusterIP" not in made["spec"]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"ports": [WEB, {"port": 81}]}, "spec.ports[0].name: Required value"),
        ({"ports": [{"port": 0}]}, "spec.ports[0].port: Invalid value: 0"),
        ({"ports": [{"name": "a", "port": 80}, {"name": "b", "port": 80}]}, "spec.ports[1]: Duplicate value"),
        ({**LB, "clusterIP": "None"}, "may not be set to 'None' for LoadBalancer services"),
        (
            {"ports": [WEB], "externalTrafficPolicy": "Local"},
            "may only be set for externally-accessible services",
        ),
    ],
)
async def test_a_broken_rule_is_named(spec: Raw, message: str) -> None:
    with pytest.raises(Invalid) as caught:
        await Rig().make(**spec)

    assert message in caught.value.message


async def test_a_system_object_passes_the_hooks_and_has_a_uid_of_its_own_source() -> None:
    """What the server draws after it is what it would have drawn without."""
    rig, other = Rig(), Rig()

    await rig.server.ensure_system_object(
        SERVICE, new_object(SERVICE, "vip", "default", spec=LB), Rng("system")
    )

    made = await rig.local.get(SERVICE.ref("vip", "default"))
    assert made["metadata"]["uid"] == Rng("system").uid()
    assert made["spec"]["clusterIP"].startswith("10.43.")
    for one in (rig, other):
        await one.make("web")
    uids = [(await one.local.get(SERVICE.ref("web", "default")))["metadata"]["uid"] for one in (rig, other)]
    assert uids[0] == uids[1]


async def test_a_system_object_that_is_there_is_not_changed() -> None:
    rig = Rig()
    wanted = new_object(SERVICE, "vip", "default", labels={"by": "system"}, spec=LB)
    await rig.make("vip")
    before = await rig.local.get(SERVICE.ref("vip", "default"))

    await rig.server.ensure_system_object(SERVICE, wanted, Rng("system"))

    assert await rig.local.get(SERVICE.ref("vip", "default")) == before
