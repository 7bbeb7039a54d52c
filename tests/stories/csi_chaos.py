"""One random life of a CSI driver's controller: calls, several at once, that are refused, lost, given up and repeated.

Everything is drawn from the seed: which calls come when, which requests to Harvester go wrong and how, when the process dies
and when VMs go. Then the troubles end; each call is repeated until it is done, as side-cars do, and what Harvester has must
be what was asked for. To look at seeds:

    python -m tests.stories.csi_chaos 1234            # what happened, and what is wrong
    python -m tests.stories.csi_chaos 0 500           # those that are wrong, of a range
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from google.protobuf.message import Message
from tests.contract.volumes_rig import RWX_CLASS
from tests.support.clock import run_driven

from windrow.core.clock import sleep
from windrow.core.rng import Rng
from windrow.emulator.faults import (
    CONFLICT,
    INTERNAL_ERROR,
    TOO_MANY_REQUESTS,
    UNAUTHORIZED,
    UNAVAILABLE,
    WRITES,
    CutWatch,
    DropReply,
    ExpireWatch,
    Fault,
    Reset,
    Slow,
)
from windrow.kubernetes.errors import KubeError
from windrow.kubernetes.objects import annotations_of, labels_of, nested, uid_of
from windrow.kubernetes.requests import json_patch
from windrow.kubernetes.resources import PVC, STORAGE_CLASS
from windrow.protocols.csi import csi_pb2 as csi

from .csi_rig import (
    METHODS,
    NODES,
    SHARED,
    CsiRig,
    a_csi_rig,
    cancel,
    create,
    create_snapshot,
    delete,
    delete_snapshot,
    describe,
    expand,
    publish,
    unpublish,
)
from .harvester_rig import boot, eventually, is_gone, order, vm_ref, vmi_ref
from .test_hotplug import a_claim

VOLUMES = ("v-1", "v-2", "v-3")
# Made of SNAPSHOT, which is of the first volume.
COPY = "v-4"
SNAPSHOT = "s-1"
# Several nodes share it.
SHARE, SHARE_CLASS = "v-5", "longhorn-rwx"
# What an administrator plugged into the first VM, under a name of their own.
THEIRS, THEIR_DISK = "theirs", "data-of-theirs"
# Codes that no call may have, whatever goes wrong.
BAD_CODES = ("INTERNAL", "UNKNOWN", "INVALID_ARGUMENT", "UNIMPLEMENTED")
PATIENCE_S = 3600.0


@dataclass
class Life:
    """One run: what happened (`lines`) and what is wrong (`faults`)."""

    rig: CsiRig
    rng: Rng
    lines: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    # In the order in which they began, so that a seed is the same life each time.
    calls: dict[asyncio.Task[None], None] = field(default_factory=dict)
    # The claims that were seen, by uid, and those whose deletion was asked for.
    known: dict[str, str] = field(default_factory=dict)
    to_delete: set[str] = field(default_factory=set)

    def log(self, what: str) -> None:
        self.lines.append(f"{self.rig.now_s:9.3f} s  {what}")

    def fault(self, what: str) -> None:
        if what not in self.faults:
            self.faults.append(what)
            self.log(f"WRONG: {what}")

    def pick(self, *options: Any) -> Any:
        return options[self.rng.below(len(options))]

    # --- calls ------------------------------------------------------------------------------------------------------

    def begin(self, request: Message, give_up_s: float | None) -> None:
        """A call that runs by itself; its caller gives up after a while, where that is said."""
        self.own(self._run(request, give_up_s))

    def own(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self.calls[task] = None
        task.add_done_callback(lambda done: self.calls.pop(done, None))

    async def _run(self, request: Message, give_up_s: float | None) -> None:
        self.on_begin(request)
        self.log(f"{describe(request)} begins")
        call = asyncio.create_task(self.rig.call(METHODS[type(request)], request))
        await asyncio.wait([call], timeout=give_up_s)
        if not call.done():
            await cancel(call)
            self.log(f"{describe(request)}: its caller gives up")
            return
        answer = call.result()
        self.log(f"{describe(request)}: {answer.code} {answer.text}")
        if answer.code in BAD_CODES:
            self.fault(f"{describe(request)} is answered {answer.code}: {answer.text}")

    def on_begin(self, request: Message) -> None:
        if isinstance(request, csi.DeleteVolumeRequest):
            self.to_delete.add(request.volume_id)

    async def finish(self, request: Message) -> None:
        """The call is repeated until it is done."""
        self.on_begin(request)
        answers = await self.rig.until_done(METHODS[type(request)], request, PATIENCE_S)
        for answer in answers:
            self.log(f"{describe(request)}: {answer.code} {answer.text}")
        if not answers[-1].is_ok:
            self.fault(f"{describe(request)} is never done: {answers[-1].code} {answers[-1].text}")

    # --- invariants -------------------------------------------------------------------------------------------------

    async def check(self) -> None:
        """What holds after each write."""
        claims, vms = await self.rig.claims(), await self.rig.vm_claims()
        users: dict[str, list[str]] = {}
        for vm, found in vms.items():
            for claim in found:
                users.setdefault(claim, []).append(vm)
        for claim, nodes in users.items():
            if len(nodes) > 1:
                self.fault(f"{claim} is a disk of {', '.join(nodes)}")
        present = {uid_of(raw): name for name, raw in claims.items() if "-disk-0" not in name}
        for uid in [one for one in self.known if one not in present]:
            if (name := self.known.pop(uid)) not in self.to_delete:
                self.fault(f"claim {name} is gone, and no DeleteVolume named it")
        self.known.update(present)
        made = [annotations_of(raw).get("windrow.io/csi-volume-name") for raw in claims.values()]
        for one in set(made) - {None}:
            if made.count(one) > 1:
                self.fault(f"{made.count(one)} claims are volume {one}")
        for desired, nodes in await self.rig.exports():
            if (desired == "Enabled") is not bool(nodes):
                self.fault(f"the export of {SHARE} is {desired}, and used by {sorted(nodes)}")
        await self._check_others()

    async def _check_others(self) -> None:
        for node in NODES:
            vm = await self.rig.client.find(vm_ref(node))
            if vm is None:
                continue
            volumes = [one["name"] for one in nested(vm, "spec", "template", "spec", "volumes")]
            disks = [
                one["name"] for one in nested(vm, "spec", "template", "spec", "domain", "devices", "disks")
            ]
            own = ["cloudinitdisk", "disk-0", *([THEIR_DISK] if node == NODES[0] else [])]
            if [one for one in volumes if one not in (*VOLUMES, COPY)] != own:
                self.fault(f"{node} has volumes {volumes}")
            if [one for one in disks if one not in (*VOLUMES, COPY)] != own:
                self.fault(f"{node} has disks {disks}")

    async def check_at_rest(self, wanted: dict[str, str]) -> None:
        """`wanted` is the node of each volume that there is."""
        await self.check()
        vms = await self.rig.vm_claims()
        found = {claim: vm for vm, claims in vms.items() for claim in claims if claim != THEIRS}
        attached = {claim: node for claim, node in wanted.items() if node and claim != SHARE}
        if found != attached:
            self.fault(f"attached are {found}, asked for was {attached}")
        exported = [",".join(sorted(nodes)) for desired, nodes in await self.rig.exports() if nodes]
        if exported != [node for claim, node in wanted.items() if claim == SHARE and node]:
            self.fault(f"shared is with {exported}, asked for was {wanted.get(SHARE)}")
        claims = {name for name, raw in (await self.rig.claims()).items() if labels_of(raw) and _is_ours(raw)}
        if claims != set(wanted):
            self.fault(f"claims are {sorted(claims)}, asked for were {sorted(wanted)}")
        answer = await self.rig.call("ListVolumes", csi.ListVolumesRequest())
        if not answer.is_ok:
            self.fault(f"ListVolumes is answered {answer.code}: {answer.text}")
            return
        listed = {
            one.volume.volume_id: ",".join(one.status.published_node_ids) for one in answer.response.entries
        }
        if listed != wanted:
            self.fault(f"listed are {listed}, asked for was {wanted}")


def _is_ours(raw: Any) -> bool:
    return "windrow.io/csi-driver" in labels_of(raw)


# --- what is asked for, and what goes wrong -------------------------------------------------------------------------


def random_request(life: Life) -> Message:
    volume, node = life.pick(*VOLUMES, *VOLUMES, COPY), life.pick(*NODES)
    match life.rng.below(18):
        case 0 | 1 | 2:
            return create(volume, snapshot=SNAPSHOT if volume == COPY else "")
        case 3:
            return delete(volume)
        case 4 | 5 | 6 | 7:
            return publish(volume, node)
        case 8 | 9:
            return unpublish(volume, node)
        case 10:
            return unpublish(volume)
        case 11:
            return expand(volume, life.pick(1, 2, 3))
        case 12:
            return create_snapshot(SNAPSHOT, VOLUMES[0])
        case 13:
            return life.pick(create_share(), delete(SHARE), expand(SHARE, 2))
        case 14 | 15:
            return publish(SHARE, node, SHARED)
        case 16:
            return unpublish(SHARE, life.pick(node, node, ""))
        case _:
            return life.pick(delete_snapshot(SNAPSHOT), csi.ListVolumesRequest(), csi.ListSnapshotsRequest())


def create_share() -> csi.CreateVolumeRequest:
    return create(SHARE, host_class=SHARE_CLASS, capability=SHARED)


async def trouble(life: Life) -> str:
    rig, faults = life.rig, life.rig.harvester.faults
    match life.rng.below(8):
        case 0 | 1:
            rig.restart()
            return "the process dies and is started again"
        case 2:
            span = life.pick(0.5, 5.0, 40.0)
            life.own(rig.lose_host(span))
            return f"Harvester is down for {span} s"
        case 3:
            if life.rng.below(2):
                faults.add(Fault(ExpireWatch(), frozenset({"watch"}), times=3))
            faults.cut_watches()
            return "watches break"
        case 4:
            await rig.client.delete(vm_ref(NODES[2]))
            return f"VM {NODES[2]} is deleted by hand"
        case 5:
            status = await order(rig.harvester, life.pick("stop", "start"), NODES[1])
            return f"VM {NODES[1]} is stopped or started: {status}"
        case 6:
            fault = faults.add(Fault(life.pick(UNAUTHORIZED, UNAVAILABLE), times=life.pick(1, 5, 20)))
            return f"Harvester answers {fault.effect} {fault.times} times"
        case _:
            fault = faults.add(Fault(Slow(life.pick(1.0, 8.0)), WRITES, times=2))
            return f"two writes take {fault.effect}"


def add_faults(life: Life) -> list[Fault]:
    """What befalls requests in this run."""
    odds = life.pick(0.0, 0.1, 0.3)
    sorts = (
        Fault(CONFLICT, frozenset({"update", "patch"}), probability=odds),
        Fault(INTERNAL_ERROR, WRITES, probability=odds),
        Fault(DropReply(), WRITES, probability=odds),
        Fault(Reset(), WRITES, probability=odds),
        Fault(TOO_MANY_REQUESTS, probability=odds),
        Fault(Slow(life.pick(0.3, 3.0)), probability=odds),
        Fault(CutWatch(1 + life.rng.below(3), clean=bool(life.rng.below(2))), frozenset({"watch"})),
    )
    return [life.rig.harvester.faults.add(life.pick(*sorts)) for _ in range(life.pick(0, 1, 2))]


# --- a life ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Outcome:
    """What happened and what is wrong, in sentences."""

    seed: int
    lines: tuple[str, ...]
    faults: tuple[str, ...]


def live(seed: int) -> Outcome:
    """The life of this seed, to its end."""
    return run_driven(_live(seed))


async def _live(seed: int) -> Outcome:
    rng = Rng(f"csi {seed}")
    version = ("v1.8.2", "v1.8.2", "v1.7.1")[rng.below(3)]
    async with a_csi_rig(seed, version=version) as rig:
        life = Life(rig, rng)
        life.log(f"Harvester {version}")
        await plug_theirs(rig)
        await rig.client.create(STORAGE_CLASS, RWX_CLASS)
        await life.check()
        rig.after_write = life.check
        for fault in add_faults(life):
            life.log(f"{fault.effect} with odds {fault.probability}")
        for volume in VOLUMES[: rng.below(4)]:
            life.begin(create(volume), None)
        for _ in range(8 + rng.below(16)):
            if rng.below(6):
                life.begin(random_request(life), life.pick(None, None, None, 0.01, 0.4, 2.0, 6.0))
            else:
                with suppress(KubeError):
                    life.log(await trouble(life))
            await _pass(rig, life.pick(0.0, 0.0, 0.01, 0.1, 0.5, 2.0, 6.0, 20.0))
        await finish(life)
        return Outcome(seed, tuple(life.lines), tuple(life.faults))


async def plug_theirs(rig: CsiRig) -> None:
    await rig.client.create(PVC, a_claim(THEIRS))
    source = {
        "name": THEIR_DISK,
        "persistentVolumeClaim": {"claimName": THEIRS, "hotpluggable": True},
    }
    path = "/spec/template/spec"
    changes = [
        {"op": "add", "path": f"{path}/volumes/-", "value": source},
        {
            "op": "add",
            "path": f"{path}/domain/devices/disks/-",
            "value": {"name": THEIR_DISK, "disk": {"bus": "scsi"}},
        },
    ]
    reply = await rig.client.send(json_patch(vm_ref(NODES[0]), changes))
    assert reply.status == 200, reply.body


async def finish(life: Life) -> None:
    """The troubles end. What is asked for then comes to be, and after its deletion nothing is left."""
    rig = life.rig
    rig.harvester.faults.script.clear()
    life.log("all is well from here on")
    if life.rng.below(2):
        rig.restart()
    while life.calls and life.rng.below(4):
        await asyncio.wait(life.calls, return_when=asyncio.FIRST_COMPLETED)
    for call in list(life.calls):
        await cancel(call)
    rig.is_down = False
    await restore_vms(life)
    wanted = {one: life.pick("", *NODES) for one in (*VOLUMES, COPY)}
    sharing = [one for one in NODES if life.rng.below(2)]
    await asyncio.gather(*(life.finish(unpublish(one)) for one in (*wanted, SHARE)))
    await asyncio.gather(*(life.finish(create(one)) for one in VOLUMES), life.finish(create_share()))
    await life.finish(create_snapshot(SNAPSHOT, VOLUMES[0]))
    await life.finish(create(COPY, snapshot=SNAPSHOT))
    await asyncio.gather(
        *(life.finish(publish(one, node)) for one, node in wanted.items() if node),
        *(life.finish(publish(SHARE, node, SHARED)) for node in sharing),
    )
    wanted[SHARE] = ",".join(sharing)
    await asyncio.gather(*(life.finish(expand(one, 4)) for one in VOLUMES))
    await _pass(rig, 30)
    await life.check_at_rest(wanted)
    await asyncio.gather(*(life.finish(unpublish(one)) for one in wanted))
    await asyncio.gather(*(life.finish(delete(one)) for one in wanted))
    await life.finish(delete_snapshot(SNAPSHOT))
    await _pass(rig, 60)
    await life.check_at_rest({})
    if left := await rig.snapshots():
        life.fault(f"snapshots are left: {sorted(left)}")


async def restore_vms(life: Life) -> None:
    rig = life.rig
    await _pass(rig, 10)  # what was ordered of it last is under way
    while not await _runs(rig, NODES[1]):
        await order(rig.harvester, "start", NODES[1])
        await _pass(rig, 5)
    found = await rig.client.find(vm_ref(NODES[2]))
    if found is None or "deletionTimestamp" in found["metadata"]:
        await eventually(rig.harvester, vm_ref(NODES[2]), is_gone)
        await eventually(rig.harvester, vmi_ref(NODES[2]), is_gone)
        await boot(rig.harvester, name=NODES[2])


async def _runs(rig: CsiRig, node: str) -> bool:
    vmi = await rig.client.find(vmi_ref(node))
    return (
        vmi is not None
        and "deletionTimestamp" not in vmi["metadata"]
        and nested(vmi, "status", "phase") == "Running"
    )


async def _pass(rig: CsiRig, seconds: float) -> None:
    await sleep(rig.clock, timedelta(seconds=seconds))


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    first = int(sys.argv[1])
    end = int(sys.argv[2]) if len(sys.argv) > 2 else first + 1
    for seed in range(first, end):
        outcome = live(seed)
        if end == first + 1:
            print("\n".join((*outcome.lines, "", *(outcome.faults or ("all is well",)))))
        elif outcome.faults:
            print(f"seed {seed}: {'; '.join(outcome.faults)[:600]}", flush=True)
        elif seed % 20 == 0:
            print(f"at seed {seed}", file=sys.stderr, flush=True)
