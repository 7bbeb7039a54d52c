"""What the direct adapter costs, and what it does on bad days: crashes, lost answers, revoked rights, moved racks."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from tests.contract.harvester_rig import HarvesterRig, harvester_rig
from tests.contract.test_machines import CREDENTIAL, DOCUMENT, a_spec, create_running, wait_for_status
from tests.support.clock import run_driven

from windrow.core.formats.json import dumps
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

NAME = "c1-pool1-abcde-fghij"


def play(story: Callable[[HarvesterRig], Awaitable[None]]) -> None:
    async def staged() -> None:
        async with harvester_rig() as rig:
            await story(rig)

    run_driven(staged())


def test_a_machine_costs_six_requests_from_check_to_create() -> None:
    async def story(rig: HarvesterRig) -> None:
        assert await rig.machines.check([a_spec()]) == []
        await rig.machines.ensure(a_spec(), None)

        assert rig.calls() == [
            "GET virtualmachineimages/jammy",
            "GET network-attachment-definitions/vlan50",
            "GET namespaces/kube-system",
            "GET virtualmachineimages/jammy",
            "POST default/virtualmachines",
            "POST default/secrets",
        ]

    async def counted(rig: HarvesterRig) -> None:
        # A list is a GET of the collection, a POST is not; tell them apart here.
        rig.requests.clear()
        await story(rig)

    play(counted)


def test_the_second_machine_costs_three_and_a_pool_is_checked_once() -> None:
    async def story(rig: HarvesterRig) -> None:
        await rig.machines.ensure(a_spec(), None)
        rig.requests.clear()
        await rig.machines.check(
            [a_spec("c1-pool1-abcde-second", "m-2"), a_spec("c1-pool1-abcde-third", "m-3")]
        )
        assert len(rig.calls()) == 2
        await rig.machines.ensure(a_spec("c1-pool1-abcde-second", "m-2"), None)
        assert len(rig.calls()) == 5

    play(story)


def test_a_removal_costs_three_calls_with_the_proof_that_it_is_through() -> None:
    async def story(rig: HarvesterRig) -> None:
        config = await create_running(rig, a_spec())
        rig.requests.clear()
        await rig.machines.remove(config, frozenset())
        await wait_for_status(rig, "m-1", lambda s: s.presence == "missing")
        assert rig.calls() == [
            f"PATCH virtualmachines/{NAME}",
            f"DELETE virtualmachines/{NAME}",
            f"GET virtualmachines/{NAME}",
        ]

    play(story)


def test_idle_machines_cost_nothing() -> None:
    async def story(rig: HarvesterRig) -> None:
        await create_running(rig, a_spec())
        rig.requests.clear()
        await rig.harvester.clock.sleep(3600)
        assert rig.calls() == []

    play(story)


def test_bootstrap_secrets_are_in_the_secret_only_and_owner_annotations_everywhere() -> None:
    async def story(rig: HarvesterRig) -> None:
        await create_running(rig, a_spec())
        vm = await rig.line.get(kinds.VM.ref(NAME, "default"))
        secret = await rig.line.get(SECRET.ref(f"{NAME}-cloudinit", "default"))
        [claim] = await rig.line.list(PVC, "default")
        marks = {"windrow.io/cluster-uid": "cluster-1", "windrow.io/machine-uid": "m-1"}

        assert "s3cret" not in str(vm)
        assert "s3cret" in await rig.document(NAME)
        assert "qemu-guest-agent" in await rig.document(NAME)
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
    async def story(rig: HarvesterRig) -> None:
        await rig.harvester.preload(
            images=[Image("default/installer", url="https://x/installer.iso")],
            networks=[VmNetwork("default/other", vlan=51, cidr="192.168.51.0/24")],
        )
        bad = a_spec(
            "Bad_Name",
            cpuCount="0",
            memorySize="lots",
            diskInfo='{"disks":[{"imageName":"default/nothing","size":1},{"imageName":"default/installer","size":1}]}',
            networkInfo='{"interfaces":[{"networkName":"default/nowhere"}]}',
            keyPairName="default/missing",
            vmAffinity="{broken",
            userData="#!/bin/sh\n",
        )
        problems = await rig.machines.check([bad])
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
            await rig.machines.ensure(bad, None)
        assert await rig.vms() == []

    play(story)


@pytest.mark.parametrize(("arrives", "words"), [("fails", "failed to import"), ("stuck", "is not ready")])
def test_an_image_that_is_not_there_yet_or_never_will_be_is_refused(arrives: Any, words: str) -> None:
    async def story(rig: HarvesterRig) -> None:
        await rig.harvester.preload(images=[Image("default/late", import_outcome=arrives)])
        await rig.harvester.clock.sleep(600)
        spec = a_spec(diskInfo='{"disks":[{"imageName":"default/late","size":40}]}')
        assert words in "; ".join(problem.message for problem in await rig.machines.check([spec]))
        with pytest.raises(MachineRefused, match=words):
            await rig.machines.ensure(spec, None)
        assert await rig.vms() == []

    play(story)


def test_a_missing_image_is_refused_by_create_itself_too() -> None:
    async def story(rig: HarvesterRig) -> None:
        spec = a_spec(diskInfo='{"disks":[{"imageName":"default/nothing","size":40}]}')
        with pytest.raises(MachineRefused, match="default/nothing does not exist"):
            await rig.machines.ensure(spec, None)
        assert await rig.vms() == []

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
    async def story(rig: HarvesterRig) -> None:
        fragile = HarvesterMachines(
            rig.credential,
            lambda access: Fragile(rig.dial(access), at, after),
            rig.harvester.clock.base,
            Rng(5),
        )
        with pytest.raises(Crash):
            await fragile.ensure(a_spec(), None)
        config = await rig.machines.ensure(a_spec(), None)
        status = await wait_for_status(rig, "m-1", lambda s: bool(s.addresses))

        assert status.vm_uid == config["WindrowVMUID"]
        assert await rig.vms() == [NAME]
        assert await rig.claims() == [f"{NAME}-disk-0"]

    play(story)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("at", [1, 2, 3, 4])
def test_a_crash_around_any_request_of_a_removal_is_continued(at: int, after: bool) -> None:
    async def story(rig: HarvesterRig) -> None:
        config = await create_running(rig, a_spec())
        fragile = HarvesterMachines(
            rig.credential,
            lambda access: Fragile(rig.dial(access), at, after),
            rig.harvester.clock.base,
            Rng(5),
        )
        with pytest.raises(Crash):
            await fragile.remove(config, frozenset())
        await rig.machines.remove(config, frozenset())
        await wait_for_status(rig, "m-1", lambda s: s.presence == "missing")

        assert await rig.vms() == []
        assert await rig.claims() == []
        assert await rig.line.find(SECRET.ref(f"{NAME}-cloudinit", "default")) is None

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
    async def story(rig: HarvesterRig) -> None:
        deaf = HarvesterMachines(
            rig.credential,
            lambda access: Deaf(rig.dial(access), "POST", last),
            rig.harvester.clock.base,
            Rng(5),
        )
        await deaf.ensure(a_spec(), None)
        posts = [call for call in rig.calls() if call == f"POST default/{last}"]
        assert posts == [f"POST default/{last}"]
        assert await rig.vms() == [NAME]

    play(story)


def test_a_secret_with_another_owner_is_left_alone_and_the_vm_deleted_again() -> None:
    async def story(rig: HarvesterRig) -> None:
        foreign = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": f"{NAME}-cloudinit", "namespace": "default"},
            "data": {"userdata": "aGk="},
        }
        await rig.line.create(SECRET, foreign)
        with pytest.raises(MachineRefused, match=f"{NAME}-cloudinit exists and is not this machine's"):
            await rig.machines.ensure(a_spec(), None)
        await rig.harvester.clock.sleep(60)

        assert await rig.vms() == []
        assert await rig.claims() == []
        assert await rig.document(NAME) == "hi"

    play(story)


def test_volumes_that_others_plugged_in_survive_and_named_ones_go() -> None:
    async def story(rig: HarvesterRig) -> None:
        config = await create_running(rig, a_spec())
        for claim in ("pvc-kept", "pvc-named"):
            await rig.line.create(
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
        await rig.machines.remove(config, frozenset({"pvc-named"}))
        await wait_for_status(rig, "m-1", lambda s: s.presence == "missing")
        await rig.harvester.clock.sleep(60)

        left = [claim["metadata"]["name"] for claim in await rig.line.list(PVC, "default")]
        assert left == ["pvc-kept"]

    play(story)


def test_a_lost_machines_own_leftovers_go_with_its_record() -> None:
    async def story(rig: HarvesterRig) -> None:
        config = await create_running(rig, a_spec())
        await rig.delete_vm(NAME)
        await wait_for_status(rig, "m-1", lambda s: s.presence == "missing")
        assert await rig.claims() == [f"{NAME}-disk-0"]

        await rig.machines.remove(config, frozenset())
        assert await rig.claims() == []

    play(story)


def test_a_claim_without_our_owner_annotations_is_no_orphan() -> None:
    async def story(rig: HarvesterRig) -> None:
        config = await create_running(rig, a_spec())
        [claim] = await rig.line.list(PVC, "default")
        ref = PVC.ref(claim["metadata"]["name"], "default")
        await rig.line.patch(ref, {"metadata": {"annotations": {names.MACHINE_UID: None}}})
        await rig.delete_vm(NAME)
        await wait_for_status(rig, "m-1", lambda s: s.presence == "missing")
        await rig.machines.remove(config, frozenset())

        assert await rig.claims() == [f"{NAME}-disk-0"]

    play(story)


def test_a_vm_that_lost_its_label_is_not_missing() -> None:
    async def story(rig: HarvesterRig) -> None:
        await create_running(rig, a_spec())
        change = {"metadata": {"labels": {names.CREATOR: None}}}
        await rig.line.patch(kinds.VM.ref(NAME, "default"), change)
        await rig.harvester.clock.sleep(120)

        status = rig.machines.statuses().get("m-1")
        assert status is not None
        assert status.presence == "present"

    play(story)


def test_another_harvester_behind_the_credential_makes_nothing_missing() -> None:
    async def story(rig: HarvesterRig) -> None:
        config = await create_running(rig, a_spec())
        fresh = HarvesterMachines(rig.credential, rig.dial, rig.harvester.clock.base, Rng(9))
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(fresh.run())
            fresh.track(
                {
                    **config,
                    "WindrowHarvesterUID": "old-harvester",
                    "MachineName": "gone",
                    "WindrowMachineUID": "m-9",
                }
            )
            await rig.harvester.clock.sleep(60)
            status = fresh.statuses().get("m-9")
            running.cancel()
        assert status is not None
        assert status.presence == "unknown"
        assert "old-harvester" in status.because

    play(story)


def test_a_machine_of_a_plugin_without_owner_annotations_is_unknown_and_stays() -> None:
    async def story(rig: HarvesterRig) -> None:
        await rig.put_foreign(NAME)
        config = {**initial_driver_config(a_spec()), "WindrowVMUID": synthetic_uid("harvester", "m-1")}
        rig.machines.track(config)

        assert (
            "no owner annotations"
            in (await wait_for_status(rig, "m-1", lambda s: "no owner annotations" in s.because)).because
        )
        with pytest.raises(InfrastructureUnknown, match="no owner annotations"):
            await rig.machines.remove(config, frozenset())
        await rig.delete_vm(NAME)
        await wait_for_status(rig, "m-1", lambda s: s.presence == "missing")
        await rig.machines.remove(config, frozenset())

    play(story)


def test_a_missing_credential_secret_makes_machines_unknown_until_it_exists() -> None:
    async def story(rig: HarvesterRig) -> None:
        await create_running(rig, a_spec())
        rig.missing_credential = True
        status = await wait_for_status(rig, "m-1", lambda s: s.presence == "unknown")
        assert CREDENTIAL in status.because
        with pytest.raises(InfrastructureUnknown, match=CREDENTIAL):
            await rig.machines.ensure(a_spec("c1-pool1-abcde-later", "m-2"), None)

        rig.missing_credential = False
        assert (await wait_for_status(rig, "m-1", lambda s: s.presence == "present")).state == "running"

    play(story)


def test_a_new_kubeconfig_takes_effect_with_the_next_operation() -> None:
    async def story(rig: HarvesterRig) -> None:
        await create_running(rig, a_spec())
        await rig.revoke()
        await wait_for_status(rig, "m-1", lambda s: s.presence == "unknown")
        await rig.restore()
        before = rig.harvester.clock.base.now()
        await rig.machines.ensure(a_spec("c1-pool1-abcde-later", "m-2"), None)
        await wait_for_status(rig, "m-1", lambda s: s.presence == "present")
        assert rig.harvester.clock.base.now() - before < timedelta(seconds=1)

    play(story)


def test_a_credential_that_is_there_again_is_used_for_all_with_the_next_request() -> None:
    async def story(rig: HarvesterRig) -> None:
        config = await create_running(rig, a_spec())
        rig.missing_credential = True
        await wait_for_status(rig, "m-1", lambda s: s.presence == "unknown")
        await rig.harvester.clock.sleep(3)
        rig.missing_credential = False
        before = rig.harvester.clock.base.now()
        await rig.machines.read_status(config)
        await wait_for_status(rig, "m-1", lambda s: s.presence == "present")
        assert rig.harvester.clock.base.now() - before < timedelta(seconds=1)

    play(story)


def test_a_lost_host_is_reported_on_its_machines() -> None:
    async def story(rig: HarvesterRig) -> None:
        await create_running(rig, a_spec())
        status = await wait_for_status(rig, "m-1", lambda s: s.host_ready is True)
        rig.harvester.fail_host(status.host)
        await wait_for_status(rig, "m-1", lambda s: s.host_ready is False)
        moved = await wait_for_status(rig, "m-1", lambda s: s.state == "running" and s.host_ready is True)
        assert moved.host != status.host

    play(story)


@pytest.mark.parametrize("order", [Power.ON, Power.RESTART])
def test_a_guest_that_powers_itself_off_is_stopped_and_can_be_started(order: Power) -> None:
    async def story(rig: HarvesterRig) -> None:
        config = await create_running(rig, a_spec())
        rig.guests[-1].end("poweroff")
        stopped = await wait_for_status(rig, "m-1", lambda s: s.state not in ("running", "stopping"))
        assert (stopped.state, stopped.addresses) == ("stopped", ())
        await rig.harvester.clock.sleep(600)
        await wait_for_status(rig, "m-1", lambda s: s.state == "stopped")

        await rig.machines.power(config, order)
        await wait_for_status(rig, "m-1", lambda s: s.state == "running" and bool(s.addresses))

    play(story)


def test_a_restart_stops_and_starts_a_machine_and_starts_one_that_is_down() -> None:
    async def story(rig: HarvesterRig) -> None:
        config = await create_running(rig, a_spec())
        config = await rig.machines.power(config, Power.RESTART)
        assert (await wait_for_status(rig, "m-1", lambda s: s.state == "stopping")).addresses == ()
        await wait_for_status(rig, "m-1", lambda s: s.state == "running" and bool(s.addresses))
        await rig.machines.power(config, Power.OFF)
        await wait_for_status(rig, "m-1", lambda s: s.state == "stopped")
        await rig.machines.power(config, Power.RESTART)
        await wait_for_status(rig, "m-1", lambda s: s.state == "running")

    play(story)


def test_power_on_a_missing_machine_is_refused() -> None:
    async def story(rig: HarvesterRig) -> None:
        config = await create_running(rig, a_spec())
        await rig.delete_vm(NAME)
        await wait_for_status(rig, "m-1", lambda s: s.presence == "missing")
        with pytest.raises(MachineRefused, match=NAME):
            await rig.machines.power(config, Power.ON)
        with pytest.raises(MachineRefused, match=NAME):
            await rig.machines.replace_user_data(config, DOCUMENT)

    play(story)


def test_an_address_is_reported_as_soon_as_harvester_has_it() -> None:
    async def story(rig: HarvesterRig) -> None:
        await rig.machines.ensure(a_spec(), None)
        clock = rig.harvester.clock.base
        known: dict[str, Any] = {}

        async def watch_harvester() -> None:
            while not (await rig.line.get(kinds.VMI.ref(NAME, "default")))["status"].get("interfaces"):
                await clock.sleep_until(clock.now() + timedelta(seconds=1))
            while True:
                vmi = await rig.line.get(kinds.VMI.ref(NAME, "default"))
                if vmi["status"]["interfaces"][0].get("ipAddress"):
                    known["harvester"] = clock.now()
                    return
                await clock.sleep_until(clock.now() + timedelta(seconds=0.01))

        await wait_for_status(rig, "m-1", lambda s: s.state in ("starting", "running"))
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(watch_harvester())
            await wait_for_status(rig, "m-1", lambda s: bool(s.addresses))
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
    async def story(rig: HarvesterRig) -> None:
        narrow = HarvesterMachines(
            rig.credential, lambda access: Narrow(rig.dial(access)), rig.harvester.clock.base, Rng(5)
        )
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(narrow.run())
            config = await narrow.ensure(a_spec(), None)
            rig.machines, whole = narrow, rig.machines
            status = await wait_for_status(rig, "m-1", lambda s: bool(s.addresses))
            assert status.host
            assert status.host_ready is None
            assert status.zone
            running.cancel()
        lists = [request for request in rig.requests if request.path.endswith("/nodes")]
        assert lists == []

        # With more rights it is still the same Harvester; with fewer it cannot be determined.
        await whole.power(config, Power.RESTART)
        seen_whole = await whole.ensure(a_spec("c1-pool1-abcde-second", "m-2"), None)
        with pytest.raises(InfrastructureUnknown, match="may not get Namespace kube-system"):
            await narrow.power(seen_whole, Power.OFF)

    play(story)


def test_machines_that_have_ended_are_not_asked_about_again() -> None:
    async def story(rig: HarvesterRig) -> None:
        config = await create_running(rig, a_spec())
        await rig.machines.remove(config, frozenset())
        await wait_for_status(rig, "m-1", lambda s: s.presence == "missing")
        rig.requests.clear()
        await rig.revoke()
        await rig.harvester.clock.sleep(120)
        await rig.restore()
        await rig.harvester.clock.sleep(120)
        assert [call for call in rig.calls() if NAME in call] == []
        status = rig.machines.statuses().get("m-1")
        assert status is not None
        assert status.presence == "missing"

    play(story)


def test_two_namespaces_and_two_clusters_of_one_name_are_kept_apart() -> None:
    async def story(rig: HarvesterRig) -> None:
        await rig.harvester.preload(namespaces=["other"])
        config = await create_running(rig, a_spec())
        twin = replace(a_spec(uid="m-2", vmNamespace="other"), cluster_uid="cluster-2")
        twins = await rig.machines.ensure(twin, None)
        await wait_for_status(rig, "m-2", lambda s: bool(s.addresses))
        await rig.machines.remove(config, frozenset())
        await wait_for_status(rig, "m-1", lambda s: s.presence == "missing")
        status = rig.machines.statuses().get("m-2")

        assert status is not None
        assert (status.presence, status.vm_uid) == ("present", twins["WindrowVMUID"])

    play(story)
