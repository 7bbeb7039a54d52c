"""Stories of the cluster manager, written from its own writes: what it did and what it said it waits for, in order.

A story is compared with its golden text in `golden/`. After a change that is meant, look at the difference and renew:
`WINDROW_RENEW=1 pytest tests/stories`. Names of machines and addresses are replaced by short ones, times left out,
so that a text changes only when the story does.
"""

from __future__ import annotations

import os
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, get_args

from tests.support.simulation import VIP, Simulation

from windrow.app.emulate import preload_objects
from windrow.app.preload import credential_secrets, read_preload
from windrow.client.transport import Transport
from windrow.clusters.api.kinds import CLUSTER, HARVESTER_CONFIG, MACHINE
from windrow.clusters.plan.actions import Action
from windrow.core.formats.fastjson import loads
from windrow.demo.cluster import DemoCluster
from windrow.kubernetes.objects import Raw, name_of, namespace_of, nested
from windrow.kubernetes.requests import Reply, Request, WatchEvent
from windrow.kubernetes.resources import SECRET, ObjectRef

GOLDEN = Path(__file__).parent / "golden"
CREDENTIAL = "cattle-global-data:cc-harvester"


# -- what users write --------------------------------------------------------------------------------------------


def a_pool(name: str, quantity: int, roles: str = "worker", **rest: Any) -> Raw:
    """A machine pool; `roles` are letters or words: "etcd control-plane worker"."""
    return {
        "name": name,
        "quantity": quantity,
        "etcdRole": "etcd" in roles,
        "controlPlaneRole": "control" in roles,
        "workerRole": "worker" in roles,
        "machineConfigRef": {"kind": "HarvesterConfig", "name": f"nc-{name}"},
        **rest,
    }


def a_cluster(*pools: Raw, name: str = "orchard", namespace: str = "fleet-default", **spec: Any) -> list[Raw]:
    """The documents of a cluster with these pools: configs first, then the Cluster."""
    vm_namespace = spec.pop("vm_namespace", "default")
    configs = [
        {
            "apiVersion": HARVESTER_CONFIG.api_version,
            "kind": "HarvesterConfig",
            "metadata": {"name": f"nc-{pool['name']}", "namespace": namespace},
            "vmNamespace": vm_namespace,
            "cpuCount": "2",
            "memorySize": "4",
            "diskInfo": '{"disks":[{"imageName":"default/jammy","size":40,"bootOrder":1}]}',
            "networkInfo": '{"interfaces":[{"networkName":"default/vlan-50"}]}',
            "sshUser": "ubuntu",
        }
        for pool in pools
    ]
    cluster = {
        "apiVersion": CLUSTER.api_version,
        "kind": "Cluster",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "cloudCredentialSecretName": CREDENTIAL,
            "kubernetesVersion": "v1.34.7+rke2r1",
            "rkeConfig": {
                "machineGlobalConfig": {"cni": "calico", "cloud-provider-name": "harvester"},
                "machinePools": list(pools),
            },
            **spec,
        },
    }
    return [*configs, cluster]


SERVERS = "etcd control-plane"
ALL = "etcd control-plane worker"


async def stock(sim: Simulation, documents: Sequence[Raw], *, kubeconfig: str = "") -> None:
    """Everything that `documents` need: images and networks at Harvester, credentials in the management API."""
    preload = read_preload(documents)
    await preload_objects(sim.harvester, preload)
    for raw in credential_secrets(documents, kubeconfig or sim.harvester.admin_kubeconfig(VIP)):
        if await sim.management_client.find(SECRET.ref(name_of(raw), namespace_of(raw))) is None:
            await sim.management_client.create(SECRET, raw)


async def post(sim: Simulation, documents: Sequence[Raw]) -> ObjectRef:
    """Create the documents; the Ref of the Cluster among them."""
    kinds = {"HarvesterConfig": HARVESTER_CONFIG, "Cluster": CLUSTER}
    ref = None
    for raw in documents:
        await sim.management_client.create(kinds[raw["kind"]], raw)
        if raw["kind"] == "Cluster":
            ref = CLUSTER.ref(name_of(raw), namespace_of(raw))
    assert ref is not None
    return ref


async def gone(sim: Simulation, ref: ObjectRef, within: timedelta = timedelta(minutes=20)) -> None:
    """Return once the object is gone. Fails when simulated time runs out."""
    end = sim.clock.now() + within
    while (found := await sim.management_client.find(ref)) is not None:
        assert sim.clock.now() < end, f"{ref} is still there: {nested(found, 'status', 'waiting')}"
        await sim.advance(seconds=1)


async def scale(sim: Simulation, ref: ObjectRef, pool: int, quantity: int) -> None:
    step = {"op": "replace", "path": f"/spec/rkeConfig/machinePools/{pool}/quantity", "value": quantity}
    await sim.management_client.json_patch(ref, [step])


async def machines_of(sim: Simulation, ref: ObjectRef, pool: str = "") -> list[Raw]:
    found = [
        raw
        for raw in await sim.management_client.list(MACHINE, ref.namespace)
        if raw["spec"]["clusterName"] == ref.name and pool in ("", raw["spec"]["pool"])
    ]
    return sorted(found, key=lambda raw: (raw["metadata"]["creationTimestamp"], name_of(raw)))


async def until(stage: DemoCluster, words: str, within: timedelta = timedelta(minutes=30)) -> Raw:
    """The Cluster, once its waiting sentence or a condition contains `words`."""
    end = stage.clock.now() + within
    while True:
        raw = await stage.get_cluster()
        said = [str(nested(raw, "status", "waiting", "for"))]
        said += [
            str(condition.get("message")) for condition in nested(raw, "status", "conditions", default=())
        ]
        if any(words in sentence for sentence in said):
            return raw
        assert stage.clock.now() < end, f"no sentence contains {words!r}; last: {said}"
        await stage.clock.sleep_until(stage.clock.now() + timedelta(seconds=1))


# Events of a Machine that are recorded on its Cluster as well.
ON_CLUSTER = frozenset(kind.reason for kind in get_args(Action) if kind.on_cluster) | {
    "RemediationRestricted",
    "DeletionHeld",
}

# -- what the manager writes -------------------------------------------------------------------------------------


@dataclass(eq=False)
class Transcript:
    """A transport that writes down what the manager says through it, and passes everything on."""

    inner: Transport
    lines: list[str] = field(default_factory=list)
    _names: dict[str, str] = field(default_factory=dict)
    _counts: dict[str, int] = field(default_factory=dict)
    _addresses: dict[str, str] = field(default_factory=dict)
    _waits: dict[str, str] = field(default_factory=dict)

    async def send(self, request: Request) -> Reply:
        reply = await self.inner.send(request)
        if not request.is_read and reply.status < 300:
            self._hear(request, reply)
        return reply

    def stream(self, request: Request) -> AbstractAsyncContextManager[AsyncIterator[WatchEvent]]:
        return self.inner.stream(request)

    def say(self, line: str) -> None:
        """A line of the storyteller's own."""
        self.lines.append(f"== {self._plain(line)}")

    def restart(self) -> None:
        """Forget what was told, also which address was which: both depend on the names of the machines."""
        self.lines.clear()
        self._addresses.clear()

    def _hear(self, request: Request, reply: Reply) -> None:
        raw = loads(reply.body)
        match raw.get("kind"):
            case "Machine" if request.method == "POST":
                self._baptise(raw)
            case "Event":
                self._hear_event(raw)
            case "Cluster":
                self._hear_wait(raw)

    def _hear_event(self, raw: Raw) -> None:
        involved, subject = raw["involvedObject"], ""
        if involved["kind"] == "Machine":
            if raw["reason"] in ON_CLUSTER:
                return  # the Cluster's own event follows
            subject = f"{involved['name']}: "
        self.lines.append(self._plain(f"{raw['reason']:<22} {subject}{raw['message']}"))

    def _hear_wait(self, raw: Raw) -> None:
        waiting = nested(raw, "status", "waiting", default={})
        key = f"{namespace_of(raw)}/{name_of(raw)}"
        sentence = f"{waiting.get('for')}; then {waiting.get('next')}" if waiting else ""
        if self._waits.get(key, "") != sentence:
            self._waits[key] = sentence
            self.lines.append(self._plain(f"  waits for {sentence}" if sentence else "  waits for nothing"))

    def _baptise(self, raw: Raw) -> None:
        pool = raw["spec"]["pool"]
        count = self._counts[pool] = self._counts.get(pool, 0) + 1
        self._names[name_of(raw)] = f"{pool}-{count}"

    def _plain(self, text: str) -> str:
        for name, plain in self._names.items():
            text = text.replace(name, plain)
        return re.sub(r"\d+\.\d+\.\d+\.\d+", self._address, text)

    def _address(self, found: re.Match[str]) -> str:
        letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
        return self._addresses.setdefault(found[0], f"<{letters[len(self._addresses)]}>")

    async def aclose(self) -> None:
        pass


def compare(name: str, lines: Sequence[str]) -> None:
    """Fail with the difference when the story is not the one in `golden/<name>.txt`."""
    text = "\n".join(lines) + "\n"
    path = GOLDEN / f"{name}.txt"
    if os.environ.get("WINDROW_RENEW"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert path.exists(), f"{path.name} is not written yet; renew with WINDROW_RENEW=1"
    assert path.read_text().splitlines() == text.splitlines()
