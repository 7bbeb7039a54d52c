"""What the direct adapter costs, and what it does on bad days: crashes, lost answers, revoked rights, moved racks."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from tests.contract.harvester_rig import RackWorld, rack_world
from tests.contract.test_machines import CREDENTIAL, DOCUMENT, a_spec, born, seen

from windrow.core.json import dumps
from windrow.core.rng import Rng
from windrow.emulator import kinds
from windrow.emulator.preload import Image, VmNetwork
from windrow.harvester import names
from windrow.kubernetes.errors import OutcomeUnknown
from windrow.kubernetes.requests import Reply, Request
from windrow.kubernetes.resources import PVC, SECRET
from windrow.machines.harvester.machines import HarvesterMachines
from windrow.machines.port import (
    InfrastructureUnknown,
    MachineRefused,
    Power,
    initial_driver_config,
    synthetic_uid,
)
from windrow.testing.clock import run_driven

NAME = "c1-pool1-abcde-fghij"


def play(story: Callable[[RackWorld], Awaitable[None]]) -> None:
    async def staged() -> None:
        async with rack_world() as world:
            await story(world)

    run_driven(staged())


def test_a_machine_costs_seven_requests_from_check_to_create() -> None:
    async def story(world: RackWorld) -> None:
        assert await world.machines.check([a_spec()]) == []
        await world.machines.ensure(a_spec(), None)

        assert world.calls() == [
            "GET virtualmachineimages/jammy",
            "GET network-attachment-definitions/vlan50",
            "GET namespaces/default",
            "GET namespaces/kube-system",
            "GET virtualmachineimages/jammy",
            "POST default/virtualmachines",
            "POST default/secrets",
        ]

    async def counted(world: RackWorld) -> None:
        # A list is a GET of the collection, a POST is not; tell them apart here.
        world.requests.clear()
        await story(world)

    play(counted)


def test_the_second_machine_costs_six_and_a_pool_is_checked_once() -> None:
    async def story(world: RackWorld) -> None:
        await world.machines.ensure(a_spec(), None)
        world.requests.clear()
        await world.machines.check(
            [a_spec("c1-pool1-abcde-second", "m-2"), a_spec("c1-pool1-abcde-third", "m-3")]
        )
        assert len(world.calls()) == 3
        await world.machines.ensure(a_spec("c1-pool1-abcde-second", "m-2"), None)
        assert len(world.calls()) == 6

    play(story)


def test_a_removal_costs_three_calls_with_the_proof_that_it_is_through() -> None:
    async def story(world: RackWorld) -> None:
        memory = await born(world, a_spec())
        world.requests.clear()
        await world.machines.remove(memory, frozenset())
        await seen(world, "m-1", lambda s: s.presence == "missing")
        assert world.calls() == [
            f"PATCH virtualmachines/{NAME}",
            f"DELETE virtualmachines/{NAME}",
            f"GET virtualmachines/{NAME}",
        ]

    play(story)


def test_idle_machines_cost_nothing() -> None:
    async def story(world: RackWorld) -> None:
        await born(world, a_spec())
        world.requests.clear()
        await world.harvester.clock.sleep(3600)
        assert world.calls() == []

    play(story)


def test_bootstrap_secrets_are_in_the_secret_only_and_owner_annotations_everywhere() -> None:
    async def story(world: RackWorld) -> None:
        await born(world, a_spec())
        vm = await world.line.get(kinds.VM.ref(NAME, "default"))
        secret = await world.line.get(SECRET.ref(f"{NAME}-cloudinit", "default"))
        [claim] = await world.line.list(PVC, "default")
        marks = {"windrow.io/cluster-uid": "cluster-1", "windrow.io/machine-uid": "m-1"}

        assert "s3cret" not in str(vm)
        assert "s3cret" in await world.document(NAME)
        assert "qemu-guest-agent" in await world.document(NAME)
        for found in (
            vm["metadata"]["annotations"],
            vm["spec"]["template"]["metadata"]["annotations"],
            secret["metadata"]["annotations"],
            claim["metadata"]["annotations"],
        ):
            assert found.items() >= marks.items()
        assert secret["metadata"]["ownerReferences"][0]["uid"] == vm["metadata"]["uid"]

    play(story)


def test_all_problems_of_a_spec_are_reported_together_with_their_fields() -> None:
    async def story(world: RackWorld) -> None:
        await world.harvester.preload(
            images=[Image("default/installer", url="https://x/installer.iso")],
            networks=[VmNetwork("default/other", vlan=51, cidr="192.168.51.0/24")],
        )
        bad = a_spec(
            "Bad_Name",
            cpuCount="0",
            memorySize="lots",
            diskInfo='{"disks":[{"imageName":"default/nothing","size":1},{"imageName":"default/installer","size":1}]}',
            networkInfo='{"interfaces":[{"networkName":"default/nowhere"}]}',
            keyPairName="default/nobody",
            vmAffinity="{broken",
            userData="#!/bin/sh\n",
        )
        problems = await world.machines.check([bad])
        told = {problem.field for problem in problems if problem.severity == "error"}
        facts = "\n".join(problem.message for problem in problems)

        assert told >= {
            "name",
            "cpuCount",
            "memorySize",
            "diskInfo",
            "networkInfo",
            "keyPairName",
            "vmAffinity",
            "userData",
        }
        assert "default/nothing does not exist" in facts
        assert "installer disc" in facts
        assert "default/nowhere does not exist" in facts
        assert all(problem.hint for problem in problems)
        with pytest.raises(MachineRefused):
            await world.machines.ensure(bad, None)
        assert await world.vms() == []

    play(story)


@pytest.mark.parametrize(("arrives", "words"), [("fails", "failed to import"), ("stuck", "is not ready")])
def test_an_image_that_is_not_there_yet_or_never_will_be_is_refused(arrives: Any, words: str) -> None:
    async def story(world: RackWorld) -> None:
        await world.harvester.preload(images=[Image("default/late", import_outcome=arrives)])
        await world.harvester.clock.sleep(600)
        spec = a_spec(diskInfo='{"disks":[{"imageName":"default/late","size":40}]}')
        assert words in "; ".join(problem.message for problem in await world.machines.check([spec]))
        with pytest.raises(MachineRefused, match=words):
            await world.machines.ensure(spec, None)
        assert await world.vms() == []

    play(story)


def test_a_missing_image_is_refused_by_create_itself_too() -> None:
    async def story(world: RackWorld) -> None:
        spec = a_spec(diskInfo='{"disks":[{"imageName":"default/nothing","size":40}]}')
        with pytest.raises(MachineRefused, match="default/nothing does not exist"):
            await world.machines.ensure(spec, None)
        assert await world.vms() == []

    play(story)


class Crash(BaseException):
    """The manager is killed here."""


class Fragile:
    """A transport under which the process dies before or after its nth request."""

    def __init__(self, inner: Any, at: int, after: bool) -> None:
        self._inner, self._left, self._after = inner, at, after

    async def send(self, request: Request) -> Reply:
        self._left -= 1
        if self._left == 0 and not self._after:
            raise Crash
        reply: Reply = await self._inner.send(request)
        if self._left == 0:
            raise Crash
        return reply

    def stream(self, request: Request) -> Any:
        return self._inner.stream(request)

    async def aclose(self) -> None:
        pass


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("at", [1, 2, 3, 4])
def test_a_crash_around_any_request_of_a_create_is_continued(at: int, after: bool) -> None:
    async def story(world: RackWorld) -> None:
        fragile = HarvesterMachines(
            world.credential,
            lambda access: Fragile(world.dial(access), at, after),
            world.harvester.clock.base,
            Rng(5),
        )
        with pytest.raises(Crash):
            await fragile.ensure(a_spec(), None)
        memory = await world.machines.ensure(a_spec(), None)
        sighting = await seen(world, "m-1", lambda s: bool(s.addresses))

        assert sighting.vm_uid == memory["WindrowVMUID"]
        assert await world.vms() == [NAME]
        assert await world.claims() == [f"{NAME}-disk-0"]

    play(story)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("at", [1, 2, 3, 4])
def test_a_crash_around_any_request_of_a_removal_is_continued(at: int, after: bool) -> None:
    async def story(world: RackWorld) -> None:
        memory = await born(world, a_spec())
        fragile = HarvesterMachines(
            world.credential,
            lambda access: Fragile(world.dial(access), at, after),
            world.harvester.clock.base,
            Rng(5),
        )
        with pytest.raises(Crash):
            await fragile.remove(memory, frozenset())
        await world.machines.remove(memory, frozenset())
        await seen(world, "m-1", lambda s: s.presence == "missing")

        assert await world.vms() == []
        assert await world.claims() == []
        assert await world.line.find(SECRET.ref(f"{NAME}-cloudinit", "default")) is None

    play(story)


class Deaf:
    """A transport that carries a request out and loses the answer, once per kind of request."""

    def __init__(self, inner: Any, method: str, last: str) -> None:
        self._inner, self._method, self._last = inner, method, last

    async def send(self, request: Request) -> Reply:
        reply: Reply = await self._inner.send(request)
        if request.method == self._method and request.path.endswith(self._last):
            self._method = ""
            raise OutcomeUnknown("the connection was reset")
        return reply

    def stream(self, request: Request) -> Any:
        return self._inner.stream(request)

    async def aclose(self) -> None:
        pass


@pytest.mark.parametrize("last", ["virtualmachines", "secrets"])
def test_a_request_with_unknown_outcome_is_read_before_it_is_repeated(last: str) -> None:
    async def story(world: RackWorld) -> None:
        deaf = HarvesterMachines(
            world.credential,
            lambda access: Deaf(world.dial(access), "POST", last),
            world.harvester.clock.base,
            Rng(5),
        )
        await deaf.ensure(a_spec(), None)
        posts = [call for call in world.calls() if call == f"POST default/{last}"]
        assert posts == [f"POST default/{last}"]
        assert await world.vms() == [NAME]

    play(story)


def test_a_secret_with_another_owner_is_left_alone_and_the_vm_deleted_again() -> None:
    async def story(world: RackWorld) -> None:
        foreign = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": f"{NAME}-cloudinit", "namespace": "default"},
            "data": {"userdata": "aGk="},
        }
        await world.line.create(SECRET, foreign)
        with pytest.raises(MachineRefused, match=f"{NAME}-cloudinit exists and is not this machine's"):
            await world.machines.ensure(a_spec(), None)
        await world.harvester.clock.sleep(60)

        assert await world.vms() == []
        assert await world.claims() == []
        assert await world.document(NAME) == "hi"

    play(story)


def test_volumes_that_others_plugged_in_survive_and_named_ones_go() -> None:
    async def story(world: RackWorld) -> None:
        memory = await born(world, a_spec())
        for claim in ("pvc-kept", "pvc-named"):
            await world.line.create(
                PVC,
                {
                    "apiVersion": "v1",
                    "kind": "PersistentVolumeClaim",
                    "metadata": {"name": claim, "namespace": "default"},
                    "spec": {
                        "accessModes": ["ReadWriteMany"],
                        "volumeMode": "Block",
                        "storageClassName": "harvester-longhorn",
                        "resources": {"requests": {"storage": "1Gi"}},
                    },
                },
            )
        await world.machines.remove(memory, frozenset({"pvc-named"}))
        await seen(world, "m-1", lambda s: s.presence == "missing")
        await world.harvester.clock.sleep(60)

        left = [claim["metadata"]["name"] for claim in await world.line.list(PVC, "default")]
        assert left == ["pvc-kept"]

    play(story)


def test_a_lost_machines_own_leftovers_go_with_its_record() -> None:
    async def story(world: RackWorld) -> None:
        memory = await born(world, a_spec())
        await world.lose(NAME)
        await seen(world, "m-1", lambda s: s.presence == "missing")
        assert await world.claims() == [f"{NAME}-disk-0"]

        await world.machines.remove(memory, frozenset())
        assert await world.claims() == []

    play(story)


def test_a_claim_without_our_owner_annotations_is_no_orphan() -> None:
    async def story(world: RackWorld) -> None:
        memory = await born(world, a_spec())
        [claim] = await world.line.list(PVC, "default")
        ref = PVC.ref(claim["metadata"]["name"], "default")
        await world.line.patch(ref, {"metadata": {"annotations": {names.MACHINE_UID: None}}})
        await world.lose(NAME)
        await seen(world, "m-1", lambda s: s.presence == "missing")
        await world.machines.remove(memory, frozenset())

        assert await world.claims() == [f"{NAME}-disk-0"]

    play(story)


def test_a_vm_that_lost_its_label_is_not_missing() -> None:
    async def story(world: RackWorld) -> None:
        await born(world, a_spec())
        change = {"metadata": {"labels": {names.CREATOR: None}}}
        await world.line.patch(kinds.VM.ref(NAME, "default"), change)
        await world.harvester.clock.sleep(120)

        sighting = world.machines.statuses().get("m-1")
        assert sighting is not None
        assert sighting.presence == "present"

    play(story)


def test_another_harvester_behind_the_credential_makes_nothing_missing() -> None:
    async def story(world: RackWorld) -> None:
        memory = await born(world, a_spec())
        fresh = HarvesterMachines(world.credential, world.dial, world.harvester.clock.base, Rng(9))
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(fresh.run())
            fresh.track(
                {
                    **memory,
                    "WindrowHarvesterUID": "old-rack",
                    "MachineName": "gone",
                    "WindrowMachineUID": "m-9",
                }
            )
            await world.harvester.clock.sleep(60)
            sighting = fresh.statuses().get("m-9")
            running.cancel()
        assert sighting is not None
        assert sighting.presence == "unknown"
        assert "old-rack" in sighting.because

    play(story)


def test_a_machine_of_a_plugin_without_owner_annotations_is_unknown_and_stays() -> None:
    async def story(world: RackWorld) -> None:
        await world.put_foreign(NAME)
        memory = {**initial_driver_config(a_spec()), "WindrowVMUID": synthetic_uid("harvester", "m-1")}
        world.machines.track(memory)

        assert "no marks" in (await seen(world, "m-1", lambda s: "no marks" in s.because)).because
        with pytest.raises(InfrastructureUnknown, match="no marks"):
            await world.machines.remove(memory, frozenset())
        await world.lose(NAME)
        await seen(world, "m-1", lambda s: s.presence == "missing")
        await world.machines.remove(memory, frozenset())

    play(story)


def test_a_missing_credential_secret_makes_machines_unknown_until_it_exists() -> None:
    async def story(world: RackWorld) -> None:
        await born(world, a_spec())
        world.missing_credential = True
        sighting = await seen(world, "m-1", lambda s: s.presence == "unknown")
        assert CREDENTIAL in sighting.because
        with pytest.raises(InfrastructureUnknown, match=CREDENTIAL):
            await world.machines.ensure(a_spec("c1-pool1-abcde-later", "m-2"), None)

        world.missing_credential = False
        assert (await seen(world, "m-1", lambda s: s.presence == "present")).state == "running"

    play(story)


def test_a_new_kubeconfig_takes_effect_with_the_next_operation() -> None:
    async def story(world: RackWorld) -> None:
        await born(world, a_spec())
        await world.revoke()
        await seen(world, "m-1", lambda s: s.presence == "unknown")
        await world.restore()
        before = world.harvester.clock.base.now()
        await world.machines.ensure(a_spec("c1-pool1-abcde-later", "m-2"), None)
        await seen(world, "m-1", lambda s: s.presence == "present")
        assert world.harvester.clock.base.now() - before < timedelta(seconds=1)

    play(story)


def test_a_lost_host_is_reported_on_its_machines() -> None:
    async def story(world: RackWorld) -> None:
        await born(world, a_spec())
        sighting = await seen(world, "m-1", lambda s: s.host_ready is True)
        world.harvester.fail_host(sighting.host)
        await seen(world, "m-1", lambda s: s.host_ready is False)
        moved = await seen(world, "m-1", lambda s: s.state == "running" and s.host_ready is True)
        assert moved.host != sighting.host

    play(story)


@pytest.mark.parametrize("order", [Power.ON, Power.RESTART])
def test_a_guest_that_powers_itself_off_is_stopped_and_can_be_started(order: Power) -> None:
    async def story(world: RackWorld) -> None:
        memory = await born(world, a_spec())
        world.guests[-1].end("poweroff")
        stopped = await seen(world, "m-1", lambda s: s.state not in ("running", "stopping"))
        assert (stopped.state, stopped.addresses) == ("stopped", ())
        await world.harvester.clock.sleep(600)
        await seen(world, "m-1", lambda s: s.state == "stopped")

        await world.machines.power(memory, order)
        await seen(world, "m-1", lambda s: s.state == "running" and bool(s.addresses))

    play(story)


def test_a_restart_stops_and_starts_a_machine_and_starts_one_that_is_down() -> None:
    async def story(world: RackWorld) -> None:
        memory = await born(world, a_spec())
        memory = await world.machines.power(memory, Power.RESTART)
        assert (await seen(world, "m-1", lambda s: s.state == "stopping")).addresses == ()
        await seen(world, "m-1", lambda s: s.state == "running" and bool(s.addresses))
        await world.machines.power(memory, Power.OFF)
        await seen(world, "m-1", lambda s: s.state == "stopped")
        await world.machines.power(memory, Power.RESTART)
        await seen(world, "m-1", lambda s: s.state == "running")

    play(story)


def test_power_on_a_missing_machine_is_refused() -> None:
    async def story(world: RackWorld) -> None:
        memory = await born(world, a_spec())
        await world.lose(NAME)
        await seen(world, "m-1", lambda s: s.presence == "missing")
        with pytest.raises(MachineRefused, match=NAME):
            await world.machines.power(memory, Power.ON)
        with pytest.raises(MachineRefused, match=NAME):
            await world.machines.replace_user_data(memory, DOCUMENT)

    play(story)


def test_an_address_is_reported_as_soon_as_harvester_has_it() -> None:
    async def story(world: RackWorld) -> None:
        await world.machines.ensure(a_spec(), None)
        clock = world.harvester.clock.base
        known: dict[str, Any] = {}

        async def watch_harvester() -> None:
            while not (await world.line.get(kinds.VMI.ref(NAME, "default")))["status"].get("interfaces"):
                await clock.sleep_until(clock.now() + timedelta(seconds=1))
            while True:
                vmi = await world.line.get(kinds.VMI.ref(NAME, "default"))
                if vmi["status"]["interfaces"][0].get("ipAddress"):
                    known["harvester"] = clock.now()
                    return
                await clock.sleep_until(clock.now() + timedelta(seconds=0.01))

        await seen(world, "m-1", lambda s: s.state in ("starting", "running"))
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(watch_harvester())
            await seen(world, "m-1", lambda s: bool(s.addresses))
            known["manager"] = clock.now()
        assert known["manager"] - known["harvester"] <= timedelta(seconds=0.1)

    play(story)


class Narrow:
    """A transport under a credential of one namespace: kube-system and the hosts are out of its sight."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    async def send(self, request: Request) -> Reply:
        if request.path.endswith(("/kube-system", "/nodes")):
            body = {"kind": "Status", "code": 403, "reason": "Forbidden", "message": "may not"}
            return Reply(403, dumps(body))
        reply: Reply = await self._inner.send(request)
        return reply

    def stream(self, request: Request) -> Any:
        return self._inner.stream(request)

    async def aclose(self) -> None:
        pass


def test_a_credential_without_nodes_works_and_is_identified_by_its_ca() -> None:
    async def story(world: RackWorld) -> None:
        narrow = HarvesterMachines(
            world.credential, lambda access: Narrow(world.dial(access)), world.harvester.clock.base, Rng(5)
        )
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(narrow.run())
            memory = await narrow.ensure(a_spec(), None)
            world.machines, whole = narrow, world.machines
            sighting = await seen(world, "m-1", lambda s: bool(s.addresses))
            assert sighting.host
            assert sighting.host_ready is None
            assert sighting.zone
            running.cancel()
        lists = [request for request in world.requests if request.path.endswith("/nodes")]
        assert lists == []

        # With more rights it is still the same Harvester; with fewer nobody can tell.
        await whole.power(memory, Power.RESTART)
        seen_whole = await whole.ensure(a_spec("c1-pool1-abcde-second", "m-2"), None)
        with pytest.raises(InfrastructureUnknown, match="may not read the kube-system namespace"):
            await narrow.power(seen_whole, Power.OFF)

    play(story)


def test_machines_that_have_ended_are_not_asked_about_again() -> None:
    async def story(world: RackWorld) -> None:
        memory = await born(world, a_spec())
        await world.machines.remove(memory, frozenset())
        await seen(world, "m-1", lambda s: s.presence == "missing")
        world.requests.clear()
        await world.revoke()
        await world.harvester.clock.sleep(120)
        await world.restore()
        await world.harvester.clock.sleep(120)
        assert [call for call in world.calls() if NAME in call] == []
        sighting = world.machines.statuses().get("m-1")
        assert sighting is not None
        assert sighting.presence == "missing"

    play(story)


def test_two_namespaces_and_two_clusters_of_one_name_are_kept_apart() -> None:
    async def story(world: RackWorld) -> None:
        await world.harvester.preload(namespaces=["other"])
        memory = await born(world, a_spec())
        twin = replace(a_spec(uid="m-2", vmNamespace="other"), cluster_uid="cluster-2")
        twins = await world.machines.ensure(twin, None)
        await seen(world, "m-2", lambda s: bool(s.addresses))
        await world.machines.remove(memory, frozenset())
        await seen(world, "m-1", lambda s: s.presence == "missing")
        sighting = world.machines.statuses().get("m-2")

        assert sighting is not None
        assert (sighting.presence, sighting.vm_uid) == ("present", twins["WindrowVMUID"])

    play(story)
