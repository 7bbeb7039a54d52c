"""Clusters that an older version has accepted, with values that no reader expects: refused alone, and deleted when asked."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

from tests.stories.cluster_rig import ALL, a_cluster, a_pool, gone, post, stock
from tests.support.clock import run_driven
from tests.support.simulation import Simulation, simulation

from windrow.clusters.api.kinds import CLUSTER
from windrow.clusters.api.names import CLUSTER_FINALIZER
from windrow.kubernetes.conditions import find_condition
from windrow.kubernetes.objects import Raw, finalizers_of, nested

DIGITS = "1" * 5000
Change = Callable[[Raw], None]


def pool(**fields: Any) -> Change:
    return lambda spec: spec["rkeConfig"]["machinePools"][0].update(fields)


def rke(**fields: Any) -> Change:
    return lambda spec: spec["rkeConfig"].update(fields)


def selector(value: Any) -> Change:
    return rke(machineSelectorConfig=[{"machineLabelSelector": value, "config": {"profile": "cis"}}])


def cidrs(key: str) -> Change:
    networks = [f"10.{n // 256}.{n % 256}.0/24" for n in range(5_000)]
    return rke(machineGlobalConfig={key: networks})


HOSTILE: dict[str, Change] = {
    "drain": pool(drainBeforeDeleteTimeout=f"{DIGITS}s"),
    "unhealthy": pool(unhealthyNodeTimeout=DIGITS),
    "startup": pool(nodeStartupTimeout="1" * 20_000),
    "percentage": pool(maxUnhealthy=f"{DIGITS}%"),
    "range": pool(unhealthyRange=f"[{DIGITS}-{DIGITS}]"),
    "quantity": pool(quantity=10**9),
    "version": lambda spec: spec.update(kubernetesVersion=f"v1.35.{DIGITS}+rke2r1"),
    "pods": cidrs("cluster-cidr"),
    "services": cidrs("service-cidr"),
    "keys": rke(machineGlobalConfig={f"k{n}": "" for n in range(1001)}),
    "no-key": selector({"matchExpressions": [{"operator": "Exists"}]}),
    "key": selector({"matchExpressions": [{"key": ["a"], "operator": "Exists"}]}),
    "labels": selector({"matchLabels": {"disk": {"a": "b"}}}),
    "text": selector("disk=ssd"),
    "pools": rke(machinePools="many"),
    "config": rke(machineGlobalConfig=[1]),
    "credential": lambda spec: spec.update(cloudCredentialSecretName={"name": "x"}),
}


async def store_as_accepted(sim: Simulation, name: str, change: Change) -> None:
    """A Cluster with our finalizer, past the checks of today."""
    kind = sim.api.registry.find_kind(CLUSTER)
    assert kind is not None
    cluster = deepcopy(a_cluster(a_pool("p", 1, ALL), name=name)[-1])
    cluster["metadata"] |= {
        "uid": f"uid-{name}",
        "generation": 1,
        "creationTimestamp": "2024-01-01T00:00:00Z",
        "finalizers": [CLUSTER_FINALIZER],
    }
    change(cluster["spec"])
    await sim.api.store.commit(kind.key("fleet-default", name), cluster, None)


def test_a_stored_cluster_with_hostile_values_is_refused_alone_and_goes_when_it_is_deleted():
    async def story():
        async with simulation(with_manager=False) as sim:
            good = a_cluster(a_pool("p", 1, ALL), name="good")
            await stock(sim, good)
            for name, change in HOSTILE.items():
                await store_as_accepted(sim, name, change)
            sim.start_manager()
            ref = await post(sim, good)
            await sim.advance(seconds=60)
            refused = {}
            for name in HOSTILE:
                raw = await sim.management_client.get(CLUSTER.ref(name, "fleet-default"))
                ready = find_condition(nested(raw, "status", "conditions", default=[]), "Ready")
                refused[name] = nested(raw, "status", "phase"), bool(ready and len(ready.message) < 5000)
            for name in HOSTILE:
                await sim.management_client.delete(CLUSTER.ref(name, "fleet-default"))
            for name in HOSTILE:
                await gone(sim, CLUSTER.ref(name, "fleet-default"))
            return refused, await sim.management_client.get(ref)

    refused, good = run_driven(story())

    assert refused == dict.fromkeys(HOSTILE, ("Refused", True))
    assert finalizers_of(good)
    assert nested(good, "status", "phase") == "Provisioning"
