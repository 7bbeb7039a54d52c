"""The metrics of manager, management API and emulator while a cluster starts, loses machines and goes."""

from __future__ import annotations

import re

from tests.stories.cluster_rig import ALL, a_cluster, a_pool, gone, machines_of, post, stock
from tests.support.clock import run_driven
from tests.support.simulation import simulation

from windrow.app.metrics.emulator import EmulatorMetrics
from windrow.emulator.faults import Fault, Slow
from windrow.harvester.resources import VM
from windrow.kubernetes.objects import name_of, namespace_of
from windrow.probes.metrics import Registry


def sum_of(registry: Registry, name: str, **labels: str) -> float:
    """The sum of the samples whose labels are among others `labels`."""
    total = 0.0
    for line in registry.render().splitlines():
        found = re.fullmatch(rf"{name}(?:{{(.*)}})? (\S+)", line)
        if found and all(f'{key}="{value}"' in (found[1] or "") for key, value in labels.items()):
            total += float(found[2])
    return total


def test_the_metrics_follow_a_cluster_from_its_first_machine_to_its_end():
    async def story() -> None:
        async with simulation(time_scale=10) as sim:
            documents = a_cluster(a_pool("all", 1, ALL), a_pool("workers", 2))
            await stock(sim, documents)
            emulator = EmulatorMetrics(sim.harvester).registry
            fault = sim.harvester.faults.add(Fault(Slow(0.01), plurals=frozenset({"virtualmachines"})))
            ref = await post(sim, documents)
            registry = sim.metrics.registry
            await sim.advance(seconds=6)
            assert sum_of(registry, "windrow_waits", kind="Cluster", reason="InProgress") == 1
            assert sum_of(registry, "windrow_waits_oldest_timestamp_seconds", kind="Cluster") > 0

            await sim.cluster(ref.name).wait_for_settled()
            await sim.advance(seconds=90)
            sim.harvester.faults.end(fault)

            assert sum_of(registry, "windrow_clusters", phase="Ready") == 1
            assert sum_of(registry, "windrow_machines", phase="Ready") == 3
            assert sum_of(registry, "windrow_waits") == 0
            assert sum_of(registry, "windrow_cluster_machines", cluster=ref.name) == 3
            assert sum_of(registry, "windrow_actions_total", reason="CreateMachine", result="done") == 3
            for host in ("harvester", "guest", "management"):
                assert sum_of(registry, "rest_client_requests_total", host=host, code="200") > 0
                assert (
                    sum_of(registry, "rest_client_request_duration_seconds_count", host=host, verb="WATCH")
                    > 0
                )
            assert sum_of(registry, "controller_runtime_reconcile_total", controller="clusters") > 5
            assert sum_of(registry, "windrow_cluster_reaction_seconds_count") > 5
            assert sum_of(registry, "workqueue_adds_total") > 5
            assert sum_of(registry, "windrow_watching") == 5
            assert sum_of(registry, "apiserver_storage_objects", resource="machines.windrow.io") == 3
            assert (
                sum_of(registry, "apiserver_longrunning_requests", resource="clusters.provisioning.cattle.io")
                == 1
            )
            assert sum_of(registry, "windrow_cluster_certificate_expiration_timestamp_seconds") > 1.7e9
            assert sum_of(emulator, "windrow_emulator_virtual_machines", status="Running") == 3
            assert sum_of(emulator, "windrow_emulator_faults_injected", effect="Slow") > 3
            assert sum_of(emulator, "windrow_emulator_faults") == 0
            assert sum_of(emulator, "apiserver_request_total", resource="virtualmachines.kubevirt.io") > 3

            lost = (await machines_of(sim, ref, "workers"))[0]
            await sim.harvester_client.delete(VM.ref(name_of(lost), "default"))
            await sim.advance(seconds=30)
            assert sum_of(registry, "windrow_disruptions_total", kind="replace", decision="admitted") == 1

            await sim.management_client.delete(ref)
            await gone(sim, ref)
            await sim.advance(seconds=5)
            assert sum_of(registry, "windrow_clusters") == 0
            assert ref.name not in registry.render()
            assert namespace_of(lost) not in registry.render()

    run_driven(story())
