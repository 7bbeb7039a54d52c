"""What Harvester is asked before a cluster gets a load balancer there: its IPPool, and who has the names."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.clusters.builders import SERVER, a_cluster, a_pool
from tests.unit.clusters.test_addresses import NETWORK, a_claim, an_address_pool

from windrow.bootstrap.spec import Role
from windrow.clusters.api import names
from windrow.clusters.api.addresses import IPAddress, render_ip_address
from windrow.clusters.api.cluster import Cluster
from windrow.clusters.api.endpoint import BalancerLocation, ControlPlaneEndpoint, field_of
from windrow.clusters.endpoint_balancer import balancer_name
from windrow.clusters.sources.endpoint_pools import check_all_pools, check_endpoint, list_claims
from windrow.harvester.identity import IDENTITY
from windrow.harvester.names import CLUSTER_UID
from windrow.harvester.resources import IP_POOL, LOAD_BALANCER
from windrow.kubernetes.errors import Forbidden
from windrow.kubernetes.kubeconfig import ClientConfig
from windrow.kubernetes.resources import ObjectRef

CLUSTER = a_cluster(
    a_pool("servers", 3, SERVER),
    control_plane_endpoint=ControlPlaneEndpoint("loadBalancer", pool="endpoints"),
)
DIVIDED = replace(
    CLUSTER, pools=tuple(a_pool(role.value, 1, frozenset({role})) for role in (Role.ETCD, Role.CONTROL_PLANE))
)
MANIFEST = replace(CLUSTER, uid="")


class Harvester:
    def __init__(self, *balancers: tuple[str, str], pool: Mapping[str, Any] | None) -> None:
        self._found = {
            LOAD_BALANCER.ref(name, "default"): {
                "metadata": {"name": name, "namespace": "default", "annotations": {CLUSTER_UID: uid}}
            }
            for name, uid in balancers
        }
        if pool is not None:
            self._found[IP_POOL.ref("endpoints")] = {"metadata": {"name": "endpoints"}, **pool}

    async def find(self, ref: ObjectRef) -> Mapping[str, Any] | None:
        return self._found.get(ref)


class Closed:
    async def find(self, ref: ObjectRef) -> None:
        raise Forbidden(f"{ref.kind.plural} is forbidden", status=403)


def told(site: Any, cluster: Cluster = CLUSTER, *claims: IPAddress) -> list[str]:
    return [problem.message for problem in asyncio.run(check_endpoint(site, cluster, claims))]


def with_free(available: int, **allocated: str) -> dict[str, Any]:
    return {"status": {"available": available, "allocated": allocated}}


API = balancer_name(CLUSTER, "api")
NONE_FREE = "IPPool endpoints has 0 free addresses, and the endpoint needs 1"
OWN, FOREIGN = (API, CLUSTER.uid), (API, "another")


@pytest.mark.parametrize(
    ("site", "words"),
    [
        (Harvester(pool=with_free(1)), ()),
        (Harvester(pool={}), ()),
        (Harvester(pool=None), ("is endpoints, and there is no such IPPool on Harvester",)),
        (Harvester(pool=with_free(0)), (NONE_FREE,)),
        (Harvester(OWN, pool=with_free(0)), ()),
        (Harvester(FOREIGN, pool=with_free(1)), (f"LoadBalancer default/{API} on Harvester is not this cluster's",)),
        (Closed(), ("is forbidden",)),
    ],
    ids=["one is free", "new", "no pool", "none is free", "its own has it", "another has its name", "forbidden"],
)  # fmt: skip
def test_an_endpoint_needs_a_free_address_and_its_name(site: Any, words: tuple[str, ...]) -> None:
    found = told(site)

    assert len(found) == len(words)
    assert all(part in one for part, one in zip(words, found, strict=True))


def test_divided_servers_need_two_addresses_less_those_that_they_have() -> None:
    assert told(Harvester(pool=with_free(2)), DIVIDED) == []
    (one,) = told(Harvester(pool=with_free(1)), DIVIDED)
    assert "has 1 free addresses, and the endpoint needs 2" in one
    assert told(Harvester(OWN, pool=with_free(1)), DIVIDED) == []


def test_of_a_manifest_an_address_that_its_load_balancer_may_have_counts_as_its_own() -> None:
    others = {"10.1.0.9": "default/web-1", "10.1.0.11": "other/prod-api-x5x7z", "10.1.0.12": ""}

    (one,) = told(Harvester(pool=with_free(0, **others)), MANIFEST)
    assert NONE_FREE in one
    own = with_free(0, **others, **{"10.1.0.10": "default/prod-api-x5x7z"})
    assert told(Harvester(pool=own), MANIFEST) == []
    assert told(Harvester(pool={}), MANIFEST) == []
    # Its name follows from the uid, which is not known yet.
    name = balancer_name(MANIFEST, "api")
    assert told(Harvester((name, "another"), pool=with_free(1)), MANIFEST) == []


def test_its_load_balancers_are_where_they_were_made_whatever_the_vm_namespace_is_now() -> None:
    made = replace(CLUSTER.control_plane_endpoint, location=BalancerLocation("default", "ns:cc"))
    moved = replace(
        CLUSTER,
        pools=(replace(CLUSTER.pools[0], options={"vmNamespace": "elsewhere"}),),
        control_plane_endpoint=made,
    )
    assert moved.vm_namespace == "elsewhere"

    assert told(Harvester(OWN, pool=with_free(0)), moved) == []


# -- an IPPool that machines have addresses of -------------------------------------------------------------------


def for_machines(network: str = "") -> dict[str, Any]:
    ends = {"subnet": "10.9.0.0/24", "rangeStart": "10.9.0.10", "rangeEnd": "10.9.0.19"}
    spec = {"ranges": [ends], "selector": {"network": network}}
    return {"metadata": {"name": "endpoints"}, "spec": spec, **with_free(9)}


def test_a_load_balancer_gets_no_address_of_a_range_in_which_machines_have_theirs() -> None:
    site = Harvester(pool=for_machines())
    inside, outside = (
        (a_claim("10.9.0.19"), a_claim("10.9.0.10", "w2")),
        (a_claim("10.9.0.9"), a_claim("fd00:9::15")),
    )

    (problem,) = asyncio.run(check_endpoint(site, CLUSTER, (*outside, *inside)))  # type: ignore[arg-type]
    assert problem.message.endswith(
        "machines have addresses in the ranges of IPPool endpoints, and the load balancer could be given one of them: "
        "10.9.0.10, 10.9.0.19"
    )
    assert problem.hint == "name an IPPool of which no machine has addresses"
    assert problem.field in problem.message
    (many,) = told(site, CLUSTER, *(a_claim(f"10.9.0.1{n}") for n in range(5)))
    assert many.endswith(": 10.9.0.10, 10.9.0.11, 10.9.0.12 and 2 more")
    assert told(site, CLUSTER, *outside) == []
    assert told(Harvester(pool=for_machines("default/other")), CLUSTER, *inside) == []
    assert len(told(Harvester(pool=for_machines(NETWORK)), CLUSTER, *inside)) == 1


@pytest.mark.parametrize(
    ("entry", "network", "place"),
    [
        (replace(an_address_pool("10.7.0.5", place="addressPools[0]"), ip_pool="endpoints"), "default/other", ".ipPool"),
        (an_address_pool("10.9.0.19", place="addressPools[0]"), "", ".addresses"),
        (an_address_pool("10.9.0.19", place="addressPools[0]"), "default/other", ""),
        (an_address_pool("10.9.0.20-10.9.0.30", place="addressPools[0]"), "", ""),
    ],
    ids=["named", "its ranges", "another network", "beside"],
)  # fmt: skip
def test_its_ip_pool_is_not_that_of_its_machines(entry: Any, network: str, place: str) -> None:
    workers = a_pool("workers", 1, address_pools=(entry,))
    found = told(Harvester(pool=for_machines(network)), replace(CLUSTER, pools=(*CLUSTER.pools, workers)))

    field = f"HarvesterConfig fleet-default/nc-workers: addressPools[0]{place}"
    assert [one.partition("; ")[0] for one in found] == [
        f"{field_of_pool()}: machines are given addresses of IPPool endpoints, by {field}"
    ] * bool(place)


def field_of_pool() -> str:
    return field_of(names.ENDPOINT_IP_POOL)


@pytest.mark.parametrize(("identity", "refused"), [("hv", 1), ("another", 0), ("", 0)])
def test_a_check_of_a_manifest_asks_for_the_claims_of_that_harvester(identity: str, refused: int) -> None:
    class Site(Harvester):
        async def find(self, ref: ObjectRef) -> Mapping[str, Any] | None:
            if ref != IDENTITY:
                return await super().find(ref)
            if not identity:
                raise Forbidden("namespaces is forbidden", status=403)
            return {"metadata": {"uid": identity}}

    class Management:
        def __init__(self, error: Exception | None = None) -> None:
            self.error = error

        async def list(self, kind: Any) -> list[Any]:
            if self.error is not None:
                raise self.error
            return [render_ip_address(a_claim("10.9.0.15")), {"metadata": {"name": "x"}}]

    async def whole() -> int:
        async def get_client(credential: str) -> Any:
            return Site(pool=for_machines())

        api: Any = Management()
        closed: Any = Management(Forbidden("ipaddresses is forbidden", status=403))
        assert await list_claims(closed) == ()

        async def get_config(credential: str) -> ClientConfig:
            return ClientConfig("https://10.0.0.1:6443")

        return len(await check_all_pools(get_client, get_config, CLUSTER, await list_claims(api)))

    assert asyncio.run(whole()) == refused
