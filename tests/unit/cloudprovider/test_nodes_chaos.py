"""Random lives of nodes and VMs, with calls that fail, answers that are lost, watches that break and programs that die.

At every deletion, and when all has been quiet for a while, the rules of the nodes must hold. `WINDROW_SEEDS` says how
many lives there are; a failing one is played alone by `pytest tests/unit/cloudprovider/test_nodes_chaos.py -k '[17]'`.
"""

import asyncio
import os
from contextlib import asynccontextmanager

import pytest
from tests.support.seeds import sampled

from windrow.core.rng import Rng
from windrow.kubernetes.errors import OutcomeUnknown, Unreachable
from windrow.kubernetes.objects import name_of, new_object, uid_of
from windrow.kubernetes.requests import Reply
from windrow.kubernetes.resources import NODE

from .rig import SHUTDOWN, UNINITIALISED, VM, VMI, ZONE, ZONE_BETA, run_story

LIVES = int(os.environ.get("WINDROW_SEEDS", "2000")) // 100
MACHINES = ("w1", "w2", "w3", "w4")
STAYS = "anchor"  # one VM that stays, so that the namespace is known to be ours
STEPS = 25


class Flaky:
    """A door behind a bad line, until `calm`. Behind the line may be another door for a while."""

    def __init__(self, door, rng):
        self.door, self._rng, self.calm = door, rng, False
        self._scopes = set()

    def identity(self):
        return self.door.identity()

    async def send(self, request, peer):
        luck = 1.0 if self.calm or "/leases/" in request.path else self._rng.uniform(0, 1)
        if luck < 0.05:
            raise Unreachable("connection refused")
        if luck < 0.1:
            return Reply(500, b'{"kind":"Status","code":500,"message":"etcd is slow"}')
        reply = await self.door.send(request, peer)
        if luck < 0.15:
            raise OutcomeUnknown("connection reset by peer")
        return reply

    def lead_to(self, door):
        """Watches must begin again."""
        self.door = door
        for scope in tuple(self._scopes):
            scope.reschedule(asyncio.get_running_loop().time())
        self._scopes.clear()

    @asynccontextmanager
    async def stream(self, request, peer):
        scope = asyncio.timeout(None)
        try:
            async with scope, self.door.stream(request, peer) as events:
                self._scopes.add(scope)
                yield self._broken(events)
        except TimeoutError as error:
            raise OutcomeUnknown("connection reset by peer") from error
        finally:
            self._scopes.discard(scope)

    async def _broken(self, events):
        async for event in events:
            if not self.calm and self._rng.uniform(0, 1) < 0.1:
                raise OutcomeUnknown("connection reset by peer")
            yield event


class Life:
    """What happens to the machines, and what is known of them beside the program."""

    def __init__(self, world, rng, to_host):
        self.world, self.rng, self.to_host = world, rng, to_host
        self.faults = []
        self.boots = 0
        self.provider_ids = {}

    async def begin(self):
        self.world.guest.admission.append(self._watch_deletions)
        await self.world.make_vm(STAYS, "192.168.1.250")
        await self.world.join(STAYS, "192.168.1.250")
        for name in MACHINES:
            await self.make(name)

    async def _watch_deletions(self, operation):
        if operation.verb != "delete" or operation.kind != NODE or operation.user.username != "program":
            return
        vm_uid = operation.old_object["spec"].get("providerID", "").removeprefix("harvester://")
        living = {uid_of(raw) for raw in await self.world.harvester.list(VM, "default")}
        if not vm_uid or vm_uid in living:
            self.faults.append(
                f"node {name_of(operation.old_object)} was deleted, and its VM {vm_uid!r} lives"
            )

    # --- what may happen ------------------------------------------------------------------------------------------

    async def make(self, name):
        """A VM, and its kubelet registers."""
        if await self.world.harvester.find(VM.ref(name, "default")) is not None:
            return
        self.boots += 1
        await self.world.make_vm(name, f"192.168.1.{self.boots}", zone=self.zone())
        if await self.world.cluster.find(NODE.ref(name)) is None:
            await self.world.join(name, f"192.168.1.{self.boots}")

    async def lose(self, name):
        for kind in (VMI, VM):
            if await self.world.harvester.find(kind.ref(name, "default")) is not None:
                await self.world.harvester.delete(kind.ref(name, "default"))
        await self.ready(name, False)

    async def switch_off(self, name):
        if await self.world.harvester.find(VMI.ref(name, "default")) is not None:
            await self.world.harvester.delete(VMI.ref(name, "default"))
        await self.ready(name, False)

    async def switch_on(self, name):
        if await self.world.harvester.find(VM.ref(name, "default")) is None:
            return
        if await self.world.harvester.find(VMI.ref(name, "default")) is None:
            vmi = new_object(
                VMI, name, "default", annotations={ZONE: self.zone()}, status={"phase": "Running"}
            )
            await self.world.harvester.create(VMI, vmi)
        await self.ready(name, True)

    async def silence(self, name):
        await self.ready(name, False)

    async def migrate(self, name):
        if await self.world.harvester.find(VMI.ref(name, "default")) is not None:
            await self.world.set_topology(name, zone=self.one_of([None, "z1", "z2"]))

    async def kill_program(self, name):
        self.world.programs[-1].cancel()
        self.world.start()

    async def expire(self, name):
        """The token ends for a while."""
        known = self.world.host.tokens.pop("harvester-token")
        await asyncio.sleep(30)
        self.world.host.tokens["harvester-token"] = known

    async def go_elsewhere(self, name):
        """Another Harvester answers at the address, with a namespace of the same name and other VMs."""
        right, wrong = self.to_host.door, self.world.another_harvester()
        self.to_host.lead_to(wrong)
        await asyncio.sleep(120)
        self.to_host.lead_to(right)

    def one_of(self, things):
        return things[self.rng.below(len(things))]

    def zone(self):
        return self.one_of(["z1", "z2"])

    async def ready(self, name, is_ready):
        if await self.world.cluster.find(NODE.ref(name)) is not None:
            await self.world.be_ready(name, is_ready)

    async def step(self):
        deeds = (
            self.make,
            self.lose,
            self.switch_off,
            self.switch_on,
            self.silence,
            self.migrate,
            self.migrate,
        )
        deeds += (self.kill_program, self.expire, self.go_elsewhere)
        await self.one_of(deeds)(self.one_of(MACHINES))
        await asyncio.sleep(self.one_of([0, 0.1, 1, 10, 60]))
        await self.note_provider_ids()

    async def note_provider_ids(self):
        for raw in await self.world.cluster.list(NODE):
            found = raw["spec"].get("providerID")
            before = self.provider_ids.setdefault(uid_of(raw), found)
            if before not in (None, found):
                self.faults.append(f"node {name_of(raw)} changed its providerID from {before} to {found}")
            self.provider_ids[uid_of(raw)] = found

    # --- what must hold when all is quiet -------------------------------------------------------------------------

    async def find_faults(self):
        instances = {name_of(raw): raw for raw in await self.world.harvester.list(VMI, "default")}
        vms = {uid_of(raw): name_of(raw) for raw in await self.world.harvester.list(VM, "default")}
        for raw in await self.world.cluster.list(NODE):
            self._check_node(raw, vms, instances)
        return self.faults

    def _check_node(self, raw, vms, instances):
        name = name_of(raw)
        is_ready = any(
            one["type"] == "Ready" and one["status"] == "True" for one in raw["status"]["conditions"]
        )
        taints = {one["key"] for one in raw["spec"].get("taints") or ()}
        vm = vms.get(raw["spec"].get("providerID", "").removeprefix("harvester://"))
        if raw["spec"].get("providerID") and vm is None and not is_ready:
            self.faults.append(f"node {name} is still there, and its VM is not")
        instance = instances.get(vm)
        if vm and (SHUTDOWN in taints) != (not is_ready and instance is None):
            self.faults.append(
                f"node {name}: ready {is_ready}, instance {instance is not None}, taints {taints}"
            )
        if vm and instance and UNINITIALISED not in taints:
            zone = (instance["metadata"].get("annotations") or {}).get(ZONE)
            labels = raw["metadata"].get("labels") or {}
            if {labels.get(ZONE), labels.get(ZONE_BETA)} != {zone}:
                self.faults.append(f"node {name}: host has {zone}, labels {labels}")


@pytest.mark.parametrize("seed", sampled(range(LIVES), 5))
def test_whatever_happens_living_vms_keep_their_nodes_and_labels_follow_the_host(seed):
    async def story(world):
        rng = Rng(f"nodes {seed}")
        lines = [Flaky(door, rng) for door in world.doors.values()]
        for address, line in zip(list(world.doors), lines, strict=True):
            world.doors[address] = line
        life = Life(world, rng, lines[0])
        await life.begin()
        world.start()
        for _ in range(STEPS):
            await life.step()
        for line in lines:
            line.calm = True
        await asyncio.sleep(1200)
        await life.note_provider_ids()
        return await life.find_faults()

    assert run_story(story) == []
