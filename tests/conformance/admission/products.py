"""Objects that our node driver makes of random options, to be judged by the real admission code.

What the driver's own checks refuse is never sent; everything else must be accepted.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from tests.conformance.admission.asking import Question

from windrow.core.formats.json import loads
from windrow.emulator.harvester import Harvester
from windrow.harvester.problems import Problem, only_errors
from windrow.harvester.resources import VM
from windrow.kubernetes.errors import KubeError
from windrow.kubernetes.objects import Raw
from windrow.kubernetes.requests import Reply, Request
from windrow.kubernetes.resources import SECRET
from windrow.machines.harvester.runner import run_operation
from windrow.nodedriver.config import read_fields
from windrow.nodedriver.errors import Refused
from windrow.nodedriver.validate.references import check
from windrow.nodedriver.validate.rules import find_problems
from windrow.nodedriver.vm.create import ensure_created

REQUIRED, PREFERRED = (f"{kind}DuringSchedulingIgnoredDuringExecution" for kind in ("required", "preferred"))
POD_TERM: Mapping[str, Any] = {"labelSelector": {"matchLabels": {"a": "b"}}, "topologyKey": "zone"}


def _pods(term: Any) -> Raw:
    return {"podAffinity": {REQUIRED: [term]}}


def _nodes(term: Any) -> Raw:
    return {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [term]}}}


# What is written wrongly in an affinity, and what only looks so.
REQUIREMENTS: tuple[Mapping[str, Any], ...] = (
    {"key": "zone", "operator": "Equals", "values": ["1"]},
    {"key": "zone", "values": ["1"]},
    {"key": "a b", "operator": "Exists"},
    {"operator": "Exists"},
    {"key": "zone", "operator": "Exists", "values": ["1"]},
    {"key": "zone", "operator": "Exists", "values": []},
    {"key": "zone", "operator": "In"},
    {"key": "zone", "operator": "In", "values": [1]},
    {"key": "zone", "operator": "NotIn", "values": ["not a label"]},
    {"key": "zone", "operator": "Gt", "values": ["1"]},
    {"key": "zone", "operator": "Lt", "values": ["1", "2"]},
)
POD_TERMS: tuple[Mapping[str, Any], ...] = (
    {"topologyKey": ""}, {"topologyKey": None}, {"topologyKey": "a b"}, {"topologyKey": 1}, {"namespaces": ["a"]},
    {"namespaces": ["A_B"]}, {"labelSelector": None}, {"labelSelector": {}}, {"labelSelector": []}, {"namespaceSelector": {}},
    {"labelSelector": {"matchLabels": {"a": "b c"}}}, {"labelSelector": {"matchLabels": {"a": 1}}},
    {"matchLabelKeys": ["a"]}, {"matchLabelKeys": "a"},
    *({"labelSelector": {"matchExpressions": [one]}} for one in REQUIREMENTS),
)  # fmt: skip
WEIGHTED: tuple[Mapping[str, Any], ...] = (
    {"weight": 0}, {"weight": -1}, {"weight": 100}, {"weight": 101}, {"weight": "1"}, {"weight": None}, {"weight": 1.5},
    {"weight": True}, {"podAffinityTerm": None}, {"podAffinityTerm": {}}, {"podAffinityTerm": {"topologyKey": "zone"}},
)  # fmt: skip
NODE_TERMS: tuple[Mapping[str, Any], ...] = (
    {},
    {"matchExpressions": []},
    *({"matchExpressions": [one]} for one in REQUIREMENTS),
    *({"matchFields": [{**one, "key": "metadata.name"}]} for one in REQUIREMENTS),
    {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["harvester-0"]}]},
    {"matchFields": [{"key": "spec.name", "operator": "In", "values": ["harvester-0"]}]},
    {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["Not a name"]}]},
)
PREFERENCES: tuple[Mapping[str, Any], ...] = (
    {"weight": 1, "preference": {}}, {"weight": 0, "preference": {}}, {"weight": 1}, {"weight": 1, "preference": []},
    *({"weight": 1, "preference": term} for term in NODE_TERMS),
)  # fmt: skip

# Values of each field: usual ones first, then what users mistake.
DRAWN: Mapping[str, tuple[Any, ...]] = {
    "cpuCount": ("2", "1", "8", "64", "0", "-1"),
    "memorySize": ("4", "1", "16", "256", "0", "4Gi"),
    "reservedMemorySize": ("-1", "0", "256", "1000", "1014", "1015", "4096"),
    "cpuModel": ("", "", "host-passthrough", "host-model", "Skylake-Server", "a b", "x" * 64),
    "enableEfi": (False, True),
    "enableSecureBoot": (False, True),
    "enableTpm": (False, True),
    "cpuPinning": (False, True),
    "isolateEmulatorThread": (False, True),
    "clusterName": ("", "c1", "a.b", "C_1"),
    "vmNamespace": ("default", "default", "tenant"),
    "keyPairName": ("", "default/key", "key", "gone"),
    "sshUser": ("root", "ubuntu", ""),
    "networkData": ("", "", "version: 2\n", "version: 2\nethernets:\n  a: {dhcp4: true}\n", "x" * 2100, "#" * 3000),
    "userData": ("", "#cloud-config\nruncmd: [ls]\n", "#cloud-config\n# " + "x" * 4000 + "\n", "no: [cloud"),
    "vmAffinity": (
        "", "",
        {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
            {"labelSelector": {"matchLabels": {"a": "b"}}, "topologyKey": "kubernetes.io/hostname"}]}},
        {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 1, "podAffinityTerm": {"labelSelector": {"matchLabels": {"a": "b"}}, "topologyKey": "zone"}}]}},
        {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["1"]}]}]}}},
        *(_pods({**POD_TERM, **change}) for change in POD_TERMS),
        *({"podAntiAffinity": {PREFERRED: [{"weight": 1, "podAffinityTerm": POD_TERM, **change}]}} for change in WEIGHTED),
        *(_nodes(change) for change in NODE_TERMS),
        *(_nodes({"matchExpressions": [REQUIREMENTS[5]], **change}) for change in NODE_TERMS),
        *({"nodeAffinity": {PREFERRED: [one]}} for one in PREFERENCES),
        {"nodeAffinity": {REQUIRED: {}}}, {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": []}}},
        {"nodeAffinity": {REQUIRED: []}}, {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [None]}}},
        {"podAffinity": {REQUIRED: {}}}, {"podAffinity": {REQUIRED: None, PREFERRED: []}}, {"podAffinity": {REQUIRED: [1]}},
    ),
    "vgpuInfo": (
        None, None,
        {"vGPURequests": [{"name": "gpu", "deviceName": "nvidia.com/A2"}]},
        {"vGPURequests": [{"deviceName": "nvidia.com/A2"}, {"deviceName": "nvidia.com/A2"}]},
        {"vGPURequests": [{"name": "gpu", "deviceName": "nvidia.com/A2"}] * 2},
        {"vGPURequests": [{"name": "gpu"}]},
    ),
}  # fmt: skip
MACHINE_NAMES = ("new-pool1-abcde-fghij", "n" * 63, "n" * 64, "a.b", "N1", "n")
DISK: Mapping[str, tuple[Any, ...]] = {
    "bus": ("", "virtio", "sata", "scsi", "usb", "ide", "SATA"),
    "type": ("", "", "", "disk", "cd-rom", "floppy"),
    "bootOrder": (0, 0, 1, 2, -1),
    "hotPlugAble": (False, False, True),
    "size": (10, 40, 1, 0),
}
CARD: Mapping[str, tuple[Any, ...]] = {
    "networkName": ("default/vlan50", "vlan50", "tenant/vlan60", "default/idle", "default/gone"),
    "model": ("", "virtio", "e1000", "e1000e", "rtl8139", "ne2k_pci", "pcnet", "vmxnet3"),
    "type": ("", "", "bridge", "masquerade", "slirp"),
    "macAddress": ("", "", "52:54:00:12:34:56", "52-54-00-12-34-57", "52:54:00:AB:CD:EF", "mac", "01:00:5e:00:00:01"),
}  # fmt: skip
SOURCES: tuple[Mapping[str, str], ...] = (
    {"imageName": "default/jammy"},
    {"imageName": "jammy"},
    {"imageName": "harvester-public/noble"},
    {"storageClassName": "fast"},
    {"storageClassName": "harvester-longhorn"},
    {"storageClassName": "longhorn-static"},
    {"storageClassName": "vmstate-persistence"},
    {"storageClassName": "encrypted"},
    {"storageClassName": "missing"},
    {},
)


def _draw(rng: random.Random, values: tuple[Any, ...], *, oddness: float) -> Any:
    """The first value, or any of them with a chance of `oddness`."""
    return rng.choice(values) if rng.random() < oddness else values[0]


def random_fields(rng: random.Random) -> dict[str, Any]:
    """The fields of a HarvesterConfig: most of them usual, some not."""
    oddness = rng.choice((0.03, 0.1, 0.3))
    fields = {name: _draw(rng, values, oddness=oddness) for name, values in DRAWN.items()}
    disks = []
    for place in range(rng.choice((1, 1, 1, 2, 3))):
        source = SOURCES[0] if place == 0 and rng.random() > oddness else rng.choice(SOURCES)
        disks.append({**source, **{key: _draw(rng, values, oddness=oddness) for key, values in DISK.items()}})
        if disks[-1]["size"] == 10:
            disks[-1]["size"] = 10 + place
    cards = [
        {key: _draw(rng, values, oddness=oddness) for key, values in CARD.items()}
        for _ in range(rng.choice((1, 1, 2)))
    ]
    return {**fields, "diskInfo": {"disks": disks}, "networkInfo": {"interfaces": cards}}


@dataclass(frozen=True, slots=True)
class Made:
    """What became of one combination: the objects as they would be sent, or the problems that prevented it."""

    number: int
    fields: Mapping[str, Any]
    name: str
    problems: tuple[Problem, ...]
    questions: tuple[Question, ...] = ()


class _Recorder:
    """A transport that answers reads from a cluster and keeps what is created, as if it had been accepted."""

    def __init__(self, harvester: Harvester) -> None:
        self._client = harvester.api.local()
        self.created: list[Raw] = []

    async def send(self, request: Request) -> Reply:
        if request.is_read:
            return await self._client.send(request)
        assert request.method == "POST", request
        raw = loads(request.body or b"")
        self.created.append(json.loads(json.dumps(raw)))
        raw["metadata"]["uid"] = "00000000-0000-4000-8000-000000000001"
        return Reply(201, json.dumps(raw).encode())


async def make(harvester: Harvester, number: int, fields: Mapping[str, Any], name: str) -> Made:
    """Exactly what the driver does before its first write, and its writes."""
    configuration, unreadable = read_fields(fields)
    configuration = replace(configuration, machine_name=name, machine_uid="m-1", cluster_uid="c-1")
    found = [*unreadable, *find_problems(configuration, must_boot=True)]
    if problems := only_errors(found):
        return Made(number, fields, name, tuple(problems))
    recorder = _Recorder(harvester)
    try:
        problems = only_errors(await run_operation(check([configuration]), recorder))  # type: ignore[arg-type]
        if problems:
            return Made(number, fields, name, tuple(problems))
        await run_operation(ensure_created(configuration, "#cloud-config\n"), recorder)  # type: ignore[arg-type]
    except Refused as refused:
        return Made(number, fields, name, tuple(refused.problems))
    except KubeError as error:
        return Made(number, fields, name, (Problem(str(error), "", "(no field)"),))
    kinds = {VM.kind: VM, SECRET.kind: SECRET}
    questions = tuple(
        Question(f"{raw['kind']} of combination {number}", "product", kinds[raw["kind"]], raw)
        for raw in recorder.created
    )
    return Made(number, fields, name, (), questions)


async def make_random(harvester: Harvester, count: int, seed: int) -> list[Made]:
    made = []
    for number in range(count):
        rng = random.Random(f"{seed}/{number}")
        made.append(await make(harvester, number, random_fields(rng), _draw(rng, MACHINE_NAMES, oddness=0.1)))
    return made


async def make_affinities(harvester: Harvester) -> list[Made]:
    """A machine of the first value of each field with each of the affinities."""
    usual = {name: values[0] for name, values in DRAWN.items()}
    disk = {**SOURCES[0], **{key: values[0] for key, values in DISK.items()}}
    card = {key: values[0] for key, values in CARD.items()}
    usual |= {"diskInfo": {"disks": [disk]}, "networkInfo": {"interfaces": [card]}}
    return [
        await make(harvester, number, {**usual, "vmAffinity": affinity}, MACHINE_NAMES[0])
        for number, affinity in enumerate(DRAWN["vmAffinity"])
    ]
