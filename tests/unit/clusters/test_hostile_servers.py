"""What a tenant's own server answers as Harvester does not end the tasks of the others."""

import asyncio
from contextlib import suppress
from types import SimpleNamespace

import pytest
from tests.support.clock import LoopClock, run_driven
from tests.support.readings import faulty_readings
from tests.unit.client.test_informer import Server

from windrow.clusters.sources.credentials import CredentialProber
from windrow.clusters.sources.harvester_objects import HarvesterObjects
from windrow.clusters.state import Place, read_node
from windrow.core.formats.json import dumps
from windrow.core.rng import Rng
from windrow.drivers.api import CLUSTER as CLUSTER_KIND
from windrow.kubernetes.kubeconfig import ClientConfig
from windrow.kubernetes.requests import Reply
from windrow.machines.harvester.vm_watcher import HostCache, TrackedVm, VmWatcher
from windrow.nodedriver.config import Configuration

TIME = "2026-01-01T00:00:00Z"
HOSTILE = Reply(200, dumps({"metadata": {"resourceVersion": "1"}, "items": [{}]}))


async def in_group(start, seconds=100):
    """Run what `start(group)` starts for a while; raises what ends it."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds), asyncio.TaskGroup() as group:
            start(group)
            await asyncio.Event().wait()


def test_a_list_without_metadata_does_not_end_the_watches_of_other_credentials():
    hostile, honest = Server(), Server()
    hostile.answer = HOSTILE
    synced = []

    def get_client(credential, namespace):
        return SimpleNamespace(transport=hostile if credential == "evil:cc" else honest)

    async def whole():
        clients = SimpleNamespace(get_client=get_client, get_config=lambda *_: None)
        objects = HarvesterObjects(clients, LoopClock(), Rng(1), lambda before, after: None, synced.append)
        places = [Place("evil:cc", "default", "evil"), Place("good:cc", "default", "good")]
        await in_group(
            lambda group: objects.watch(group, CLUSTER_KIND.ref("one", "default"), frozenset(places))
        )

    run_driven(whole())

    assert set(synced) == {"good:cc"}


@pytest.mark.parametrize("fault", [KeyError("metadata"), TypeError("unhashable"), AttributeError("get")])
def test_a_defect_met_with_one_credential_is_retried_alone(fault):
    honest, calls, synced = Server(), [], []

    def get_client(credential, namespace):
        if credential == "evil:cc":
            calls.append(credential)
            raise fault
        return SimpleNamespace(transport=honest)

    async def whole():
        clients = SimpleNamespace(get_client=get_client, get_config=lambda *_: None)
        objects = HarvesterObjects(clients, LoopClock(), Rng(1), lambda before, after: None, synced.append)
        places = [Place("evil:cc", "default", "evil"), Place("good:cc", "default", "good")]
        await in_group(
            lambda group: objects.watch(group, CLUSTER_KIND.ref("one", "default"), frozenset(places))
        )

    run_driven(whole())

    assert set(synced) == {"good:cc"}
    assert len(calls) == 8  # four kinds, twice in 100 s


@pytest.mark.parametrize("answer", [{}, {"metadata": 1}, {"metadata": {"uid": []}}])
def test_a_probe_answered_with_nonsense_is_a_problem_of_that_credential(answer):
    server = Server()
    server.answer = Reply(200, dumps(answer))

    async def whole():
        prober = CredentialProber(
            lambda credential: ClientConfig("https://evil"),
            lambda config: server,
            LoopClock(),
            lambda name: None,
        )
        await in_group(lambda group: prober.watch(group, CLUSTER_KIND.ref("one", "default"), ["evil:cc"]))
        return prober.find_problem("evil:cc", "")

    problem = run_driven(whole())

    assert problem is not None
    assert not problem.is_rejected


def test_a_vm_that_cannot_be_read_is_unknown_never_missing():
    server, statuses = Server(), []
    hostile = {
        "name": "m",
        "namespace": "default",
        "annotations": {"windrow.io/machine-uid": "u", "windrow.io/cluster-uid": "c"},
    }

    async def whole():
        clock = LoopClock()
        connection = SimpleNamespace(
            transport=server,
            client_config=SimpleNamespace(server="https://evil"),
            translate_error=lambda error: error,
        )
        watcher = VmWatcher(
            connection,
            "default",
            HostCache(server, clock, Rng(1)),
            lambda uid, status: statuses.append(status),
            clock,
            Rng(1),
        )
        configuration = Configuration(machine_name="m", machine_uid="u", cluster_uid="c", vm_uid="v")
        watcher.track(TrackedVm(configuration))
        raw = {"metadata": hostile, "spec": {"template": {"spec": {"volumes": 7}}}}
        find = server.send

        async def send(request):
            return Reply(200, dumps(raw)) if request.path.endswith("/m") else await find(request)

        server.send = send
        await in_group(lambda group: group.create_task(watcher.run()))

    run_driven(whole())

    assert {status.presence for status in statuses} == {"unknown"}
    assert "cannot be read" in statuses[-1].because


def test_the_reading_of_a_guests_node_is_of_its_types_or_there_is_none():
    condition = {"type": "Ready", "status": "True", "reason": "r", "message": "m", "lastTransitionTime": TIME}
    node = {
        "metadata": {"name": "n"},
        "spec": {"providerID": "harvester://u", "taints": [{"key": "k"}], "unschedulable": True},
        "status": {
            "conditions": [condition, {"type": "EtcdIsVoter", "status": "True"}],
            "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
        },
    }

    assert not faulty_readings(read_node, node)


def test_the_watches_of_a_place_end_with_the_last_cluster_there():
    server = Server()
    one, other = (CLUSTER_KIND.ref(name, "default") for name in ("one", "other"))
    shared, own = Place("cc:a", "default", "ns"), Place("cc:a", "other", "ns")
    open_watches = []

    async def whole():
        clients = SimpleNamespace(
            get_client=lambda *_: SimpleNamespace(transport=server), get_config=lambda *_: None
        )
        objects = HarvesterObjects(
            clients, LoopClock(), Rng(1), lambda before, after: None, lambda name: None
        )

        async def count():
            await asyncio.sleep(5)
            watches = [task for task in asyncio.all_tasks() if task.get_name().startswith("watch ")]
            open_watches.append(len(watches))

        async with asyncio.TaskGroup() as group:
            objects.watch(group, one, frozenset({shared, own}))
            objects.watch(group, other, frozenset({shared}))
            await count()
            objects.watch(group, one, frozenset())
            await count()
            objects.watch(group, other, frozenset())
            await count()
            objects.watch(group, one, frozenset({own}))
            await count()
            objects.watch(group, one, frozenset())

    run_driven(whole())

    assert open_watches == [8, 4, 0, 4]


def test_a_credential_is_probed_until_the_last_cluster_with_it_is_gone():
    server = Server()
    one, other = (CLUSTER_KIND.ref(name, "default") for name in ("one", "other"))
    probed = []

    async def whole():
        prober = CredentialProber(
            lambda credential: ClientConfig("https://harvester"),
            lambda config: server,
            LoopClock(),
            lambda name: None,
        )

        async def count():
            await asyncio.sleep(5)
            tasks = {task.get_name() for task in asyncio.all_tasks()}
            probed.append([name for name in ("cc:a", "cc:b") if f"probe {name}" in tasks])
            assert [name for name in ("cc:a", "cc:b") if prober.was_probed(name)] == probed[-1]

        async with asyncio.TaskGroup() as group:
            prober.watch(group, one, ["cc:a", "cc:b"])
            prober.watch(group, other, ["cc:a"])
            await count()
            prober.watch(group, one, [])
            await count()
            prober.watch(group, other, ["cc:b"])
            await count()
            prober.watch(group, other, [])
            await count()

    run_driven(whole())

    assert probed == [["cc:a", "cc:b"], ["cc:a"], ["cc:b"], []]
