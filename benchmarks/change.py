"""The plan of changes: of 100 clusters of 10 machines after an edit of all; read anew from objects, as `windrow plan` does.

The baseline is the same reading of the same objects with nothing edited, in this run: what the comparison itself costs shows as
a ratio that does not depend on the machine.

Then an upgrade of 3 servers and 3 workers of RKE2, on a driven clock, where computing takes no time: once with the delays of
Harvester and guests as stated (restarts of services, pulls of images, starts of pods), once with all of them a thousandth.
What does not shrink with them is our own waiting; what computing takes, the emulator's included, is measured beside it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from copy import deepcopy
from datetime import UTC, datetime
from importlib.resources import files
from typing import Any

from tests.support.clock import run_driven
from tests.support.simulation import simulation

from benchmarks import Figure
from windrow.app.manifest_checks.changes import assume_state
from windrow.clusters.api.kinds import CLUSTER, MACHINE
from windrow.clusters.api.machine import read_machine, render_machine
from windrow.clusters.api.manifest.reading import read_cluster
from windrow.clusters.bootstrap_data import find_config_hashes
from windrow.clusters.change.describe import list_sentences, render_pending
from windrow.clusters.change.pending import pending_changes
from windrow.clusters.change.revisions import list_revisions
from windrow.core.formats.yaml import load_all
from windrow.demo.waiting import Objects
from windrow.kubernetes.objects import Raw, nested

CLUSTERS, SERVERS, WORKERS = 100, 3, 7
VERSION, WANTED = "v1.35.1+rke2r1", "v1.35.2+rke2r1"
NOW = datetime(2026, 1, 1, tzinfo=UTC)
ROUNDS = 3
UPGRADED, NODES, FASTER = "v1.35.4+rke2r1", 6, 1000.0


def measure() -> Iterator[Figure]:
    yield from _measure_plan()
    yield from _measure_upgrade()


def _measure_plan() -> Iterator[Figure]:
    made = [_make(f"c{number}") for number in range(CLUSTERS)]
    edited = [(_edit(raw), config, machines) for raw, config, machines in made]
    same, _ = min(_time(made) for _ in range(ROUNDS))
    changed, turns = min(_time(edited) for _ in range(ROUNDS))
    assert turns == CLUSTERS * (SERVERS + WORKERS)
    yield Figure("plan of 100 clusters x 10 machines, all changed", changed, "s", 2, "issue 14")
    yield Figure("against the same clusters with nothing to do", changed / same, "x", 5, "this run")


def _measure_upgrade() -> Iterator[Figure]:
    took, computing, charts = run_driven(_upgrade(1.0))
    hurried, _, _ = run_driven(_upgrade(FASTER))
    own = (hurried - took / FASTER) / (1 - 1 / FASTER)
    stated = took - own
    each = (own + computing) / NODES
    yield Figure("upgrade of 3+3: until the last node is done", took, "s", stated, "stated delays, this run")
    yield Figure("upgrade of 3+3: its charts after that", charts, "s", 600, "docs/explanation/updates.md")
    yield Figure("upgrade of 3+3: own waiting for a node", own / NODES, "s", 1, "issue 14")
    yield Figure("upgrade of 3+3: with computing, a node", each, "s", 1, "issue 14")


async def _upgrade(speed: float) -> tuple[float, float, float]:
    """Seconds from the edit until each machine runs the version, those of computing meanwhile, and from then on until the cluster
    records it, which waits for the charts of the release."""
    documents = load_all((files("windrow.demo") / "manifests" / "three-and-two.yaml").read_text())
    documents[0]["spec"]["rkeConfig"]["machinePools"][1]["quantity"] = 3
    async with simulation(time_scale=speed) as sim:
        await sim.apply(documents)
        cluster = sim.cluster("orchard")
        await cluster.wait_for_settled()
        begun, computing = sim.clock.now(), time.process_time()
        await sim.management_client.patch(
            CLUSTER.ref("orchard", "fleet-default"), {"spec": {"kubernetesVersion": UPGRADED}}
        )
        await cluster.wait_on(sim.management_client, MACHINE, _are_done, f"machines to run {UPGRADED}")
        done, computing = sim.clock.now(), time.process_time() - computing
        await cluster.wait_on(sim.management_client, CLUSTER, _is_upgraded, f"it to run {UPGRADED}")
        return (done - begun).total_seconds(), computing, (sim.clock.now() - done).total_seconds()


def _are_done(machines: Objects) -> bool:
    return all(
        nested(raw, "spec", "version") == UPGRADED and not nested(raw, "status", "update")
        for raw in machines.values()
    )


def _is_upgraded(clusters: Objects) -> bool:
    return all(nested(raw, "status", "version") == UPGRADED for raw in clusters.values())


def _make(name: str) -> tuple[Raw, Raw, list[Raw]]:
    """A cluster whose machines are as it asks, as the management API has it."""
    reference = {"kind": "HarvesterConfig", "name": name}
    pools = [
        {"name": "servers", "quantity": SERVERS, "etcdRole": True, "controlPlaneRole": True},
        {"name": "workers", "quantity": WORKERS, "workerRole": True},
    ]
    metadata = {"name": name, "namespace": "default", "uid": f"uid-{name}"}
    raw: Raw = {
        "apiVersion": "provisioning.cattle.io/v1",
        "kind": "Cluster",
        "metadata": metadata,
        "spec": {
            "kubernetesVersion": VERSION,
            "cloudCredentialSecretName": "default:cc",
            "rkeConfig": {
                "machineGlobalConfig": {f"key-{number}": f"value {number}" for number in range(30)},
                "chartValues": {"rke2-canal": {"flannel": {"iface": "enp1s0"}}},
                "machinePools": [{**pool, "machineConfigRef": reference} for pool in pools],
            },
        },
        "status": {"version": VERSION, "initialized": True},
    }
    config: Raw = {
        "apiVersion": "rke-machine-config.cattle.io/v1",
        "kind": "HarvesterConfig",
        "metadata": metadata,
        "cpuCount": "4",
        "memorySize": "8",
        "diskInfo": '{"disks":[{"imageName":"default/leap","size":40,"bootOrder":1}]}',
        "networkInfo": '{"interfaces":[{"networkName":"default/vlan"}]}',
        "sshUser": "opensuse",
    }
    cluster = read_cluster(raw, [config]).cluster
    hashes = find_config_hashes(cluster, VERSION)
    raw["status"]["revisions"] = list_revisions(assume_state(cluster, (), (), NOW))
    machines = []
    for pool in cluster.pools:
        for number in range(pool.quantity):
            machine = render_machine(
                cluster,
                pool,
                f"{name}-{pool.name}-{number}",
                version=VERSION,
                config_hash=hashes[pool.name],
                join_server="",
                is_init_server=False,
            )
            stamp = {"creationTimestamp": "2026-01-01T00:00:00Z", "uid": f"uid-{name}-{pool.name}-{number}"}
            machines.append({**machine, "metadata": {**machine["metadata"], **stamp}})
    return raw, config, machines


def _edit(raw: Mapping[str, Any]) -> Raw:
    """Another version, another key and another label for all machines."""
    made = deepcopy(dict(raw))
    made["spec"]["kubernetesVersion"] = WANTED
    made["spec"]["rkeConfig"]["machineGlobalConfig"]["key-7"] = "another value"
    made["spec"]["rkeConfig"]["machinePools"][1]["labels"] = {"tier": "web"}
    return made


def _time(clusters: list[tuple[Raw, Raw, list[Raw]]]) -> tuple[float, int]:
    """Seconds, and how many machines have a turn."""
    turns, begun = 0, time.perf_counter()
    for raw, config, machines in clusters:
        reading = read_cluster(raw, [config])
        pending = pending_changes(
            assume_state(reading.cluster, reading.problems, map(read_machine, machines), NOW)
        )
        render_pending(pending)
        list_sentences(pending)
        turns += len(pending.turns)
    return time.perf_counter() - begun, turns
