"""What Harvester is asked before a cluster gets a load balancer there: its IPPool, and who has the names."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.clusters.builders import SERVER, a_cluster, a_pool

from windrow.bootstrap.spec import Role
from windrow.clusters.api.cluster import Cluster
from windrow.clusters.api.endpoint import BalancerLocation, ControlPlaneEndpoint
from windrow.clusters.endpoint_balancer import balancer_name
from windrow.clusters.sources.endpoint_pools import check_endpoint
from windrow.harvester.names import CLUSTER_UID
from windrow.harvester.resources import IP_POOL, LOAD_BALANCER
from windrow.kubernetes.errors import Forbidden
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
            self._found[IP_POOL.ref("endpoints")] = dict(pool)

    async def find(self, ref: ObjectRef) -> Mapping[str, Any] | None:
        return self._found.get(ref)


class Closed:
    async def find(self, ref: ObjectRef) -> None:
        raise Forbidden(f"{ref.kind.plural} is forbidden", status=403)


def told(site: Any, cluster: Cluster = CLUSTER) -> list[str]:
    return [problem.message for problem in asyncio.run(check_endpoint(site, cluster))]


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
