"""The CSI driver on Harvester under the account of `windrow addon`: its rights are enough, and `--csi-driver-only` has none too many.

The table says for each right what is missed first without it.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cache
from pathlib import Path

import pytest
from tests.conformance.chart_rights_rig import Permission, RightsRecorder, rights_of, without
from tests.support.clock import run_driven

from windrow.app.addon.account import AddonAccount
from windrow.client.in_process import InProcessTransport
from windrow.core.clock import sleep
from windrow.core.formats.json import dumps
from windrow.core.rng import Rng
from windrow.csi.cmd.connection import host_transport
from windrow.csi.controller import ControllerService
from windrow.csi.harvester.volumes import HarvesterVolumes, HostOptions
from windrow.csi.idempotency import IdempotentVolumes
from windrow.csi.names import SNAPSHOT_TYPE
from windrow.emulator import kinds
from windrow.harvester.names import CLAIM_MODES
from windrow.kubernetes.handler import Handler
from windrow.kubernetes.kubeconfig import parse_kubeconfig
from windrow.kubernetes.objects import Raw, nested, new_object
from windrow.kubernetes.resources import (
    CLUSTER_ROLE,
    CLUSTER_ROLE_BINDING,
    ROLE,
    ROLE_BINDING,
    SERVICE_ACCOUNT,
    STORAGE_CLASS,
)
from windrow.protocols.csi import csi_pb2 as csi

from .csi_rig import (
    GUEST,
    LOG,
    READS,
    CsiRig,
    Line,
    Process,
    create,
    create_snapshot,
    delete,
    delete_snapshot,
    expand,
    publish,
    unpublish,
)
from .harvester_rig import NAMESPACE, a_harvester, boot, vm_ref

ROOT = Path(__file__).parents[2]
CLAIMS, SNAPSHOTS = "persistentvolumeclaims", "volumesnapshots.snapshot.storage.k8s.io"
VMS, INSTANCES = "virtualmachines.kubevirt.io", "virtualmachineinstances.kubevirt.io"
BACKUPS, RESTORES = "volumeremotebackups.harvesterhci.io", "volumeremoterestores.harvesterhci.io"
SETTINGS, CLASSES = "settings.harvesterhci.io", "storageclasses.storage.k8s.io"
ACTIONS = "subresources.kubevirt.io"
NEWEST, OLD = "v1.8.2", "v1.7.1"
NARROW = AddonAccount("demo", NAMESPACE, csi_driver_only=True)
OF_ACCOUNT = "default-demo"
KINDS = {
    kind.kind: kind for kind in (SERVICE_ACCOUNT, ROLE, ROLE_BINDING, CLUSTER_ROLE, CLUSTER_ROLE_BINDING)
}
BACKUP = f"backup:{NAMESPACE}/backup-1"
ONE_HOST = "one-host"  # a StorageClass whose volumes are of one host at a time

NEEDED_FOR = {
    Permission("get", CLAIMS, NAMESPACE): "deletes volumes",
    Permission("list", CLAIMS, NAMESPACE): "makes volumes",
    Permission("watch", CLAIMS, NAMESPACE): "makes volumes",
    Permission("create", CLAIMS, NAMESPACE): "makes volumes",
    Permission("patch", CLAIMS, NAMESPACE): "grows volumes",
    Permission("delete", CLAIMS, NAMESPACE): "deletes volumes",
    Permission("get", VMS, NAMESPACE): "detaches volumes",
    Permission("list", VMS, NAMESPACE): "makes volumes",
    Permission("watch", VMS, NAMESPACE): "attaches volumes",
    Permission("patch", VMS, NAMESPACE): "attaches volumes by a patch",
    Permission("get", INSTANCES, NAMESPACE): "detaches volumes",
    Permission("list", INSTANCES, NAMESPACE): "makes volumes",
    Permission("watch", INSTANCES, NAMESPACE): "attaches volumes",
    Permission("update", f"virtualmachines.{ACTIONS}/addvolume", NAMESPACE): "attaches volumes before 1.8",
    Permission("update", f"virtualmachines.{ACTIONS}/removevolume", NAMESPACE): "detaches volumes before 1.8",
    Permission(
        "update", f"virtualmachineinstances.{ACTIONS}/removevolume", NAMESPACE
    ): "detaches volumes of a VM that is gone",
    Permission("get", SNAPSHOTS, NAMESPACE): "restores snapshots",
    Permission("list", SNAPSHOTS, NAMESPACE): "lists snapshots",
    Permission("create", SNAPSHOTS, NAMESPACE): "makes snapshots",
    Permission("delete", SNAPSHOTS, NAMESPACE): "deletes snapshots",
    Permission("get", BACKUPS, NAMESPACE): "restores backups",
    Permission("list", BACKUPS, NAMESPACE): "lists backups",
    Permission("create", BACKUPS, NAMESPACE): "makes backups",
    Permission("delete", BACKUPS, NAMESPACE): "deletes backups",
    Permission("get", RESTORES, NAMESPACE): "deletes what was restored",
    Permission("create", RESTORES, NAMESPACE): "restores backups",
    Permission("delete", RESTORES, NAMESPACE): "deletes what was restored",
    Permission("get", CLASSES): "claims what the class offers",
    Permission("get", SETTINGS, name="csi-driver-config"): "makes snapshots",
}
# Every account of a Harvester may read it; named all the same, since a role that is narrow by itself needs no other.
PUBLIC = {Permission("get", SETTINGS, name="server-version")}
# Whether a VM was shut down is asked of its launcher, too; in this story none is.
OF_FENCING = {Permission("list", "pods", NAMESPACE)}
ALL = {*NEEDED_FOR, *PUBLIC, *OF_FENCING}


class RestrictedRig(CsiRig):
    """A driver that has the token of an account, and asks through a door that notes which rights it needs."""

    token = ""

    def _start(self) -> Process:
        access = parse_kubeconfig(self.harvester.token_kubeconfig(self.token))
        self.recorders: dict[int, RightsRecorder] = {}
        clock, rng = self.clock, Rng(self._seed)
        line = Line(InProcessTransport(access, self._find, clock), self)
        options = HostOptions(NAMESPACE, guest_uid=GUEST)
        volumes = HarvesterVolumes(host_transport(line, clock, rng), options, clock, rng, LOG)
        running = self._tasks.create_task(volumes.run())
        return Process(line, ControllerService(IdempotentVolumes(volumes), LOG), running, {})

    def _find(self, host: str, port: int) -> Handler | None:
        found = self.harvester.network.find(host, port)
        return None if found is None else self.recorders.setdefault(id(found), RightsRecorder(found))

    @property
    def refused(self) -> list[str]:
        return [right for recorder in self.recorders.values() for right in recorder.refused]

    async def does(self, method: str, *requests: object) -> bool:
        """Whether the calls succeed, each within a minute of repetitions."""
        for request in requests:
            answers = await self.until_done(method, request, patience_s=60)  # type: ignore[arg-type]
            if not answers[-1].is_ok:
                return False
        return True


@dataclass
class Life:
    """`did` holds each thing that a user relies on, and whether it came about."""

    did: dict[str, bool] = field(default_factory=dict)
    asked: set[Permission] = field(default_factory=set)
    refused: list[str] = field(default_factory=list)


async def live(account: AddonAccount, objects: Sequence[Raw], version: str) -> Life:
    life = Life()
    async with a_harvester(version=version) as harvester:
        for name in ("node-1", "node-2"):
            await boot(harvester, name=name)
        admin = harvester.api.local()
        for raw in objects:
            await admin.create(KINDS[raw["kind"]], raw)
        modes = {CLAIM_MODES: dumps({"Filesystem": ["ReadWriteOnce"]}).decode()}
        longhorn = await admin.get(STORAGE_CLASS.ref("harvester-longhorn"))
        await admin.create(
            STORAGE_CLASS,
            new_object(STORAGE_CLASS, ONE_HOST, annotations=modes, provisioner=longhorn["provisioner"]),
        )
        RestrictedRig.token = await harvester.api.service_account_tokens.issue(
            await admin.get(account.account)
        )
        async with asyncio.TaskGroup() as tasks:
            rig = RestrictedRig(harvester, tasks)
            if version == OLD:
                await _use_before_1_8(rig, life.did)
            else:
                await _use(rig, life.did)
            rig.kill()
            life.asked = {right for recorder in rig.recorders.values() for right in recorder.asked}
            life.refused = rig.refused
    return life


async def _use(rig: RestrictedRig, did: dict[str, bool]) -> None:
    did["makes volumes"] = await rig.does("CreateVolume", create("data-1"), create("data-2"))
    await rig.does("CreateVolume", create("local-1", host_class=ONE_HOST))
    local = (await rig.claims()).get("local-1", {})
    did["claims what the class offers"] = nested(local, "spec", "accessModes") == ["ReadWriteOnce"]
    before = len(rig.requests)
    did["attaches volumes"] = await rig.does("ControllerPublishVolume", publish("data-1", "node-1"))
    sent = [one.method for one in rig.requests[before:] if "/virtualmachines/" in one.path]
    did["attaches volumes by a patch"] = [one for one in sent if one not in READS] == ["PATCH"]
    did["grows volumes"] = await rig.does("ControllerExpandVolume", expand("data-2", 2))
    did["lists volumes"] = await rig.does("ListVolumes", csi.ListVolumesRequest())
    await _use_snapshots(rig, did)
    did["detaches volumes"] = await rig.does("ControllerUnpublishVolume", unpublish("data-1", "node-1"))
    did["detaches volumes of a VM that is gone"] = await _detach_of_what_is_gone(rig)
    did["deletes volumes"] = await rig.does("DeleteVolume", delete("data-2"), delete("restored-1"))


async def _use_snapshots(rig: RestrictedRig, did: dict[str, bool]) -> None:
    did["makes snapshots"] = await rig.does("CreateSnapshot", create_snapshot("snap-1", "data-2"))
    await sleep(rig.clock, timedelta(seconds=30))
    listed = await rig.call("ListSnapshots", csi.ListSnapshotsRequest())
    did["lists snapshots"] = listed.is_ok and len(listed.response.entries) == 1
    backup = create_snapshot("backup-1", "data-2")
    backup.parameters[SNAPSHOT_TYPE] = "backup"
    did["makes backups"] = await rig.does("CreateSnapshot", backup)
    await sleep(rig.clock, timedelta(seconds=300))
    listed = await rig.call("ListSnapshots", csi.ListSnapshotsRequest())
    did["lists backups"] = listed.is_ok and len(listed.response.entries) == 2
    did["restores backups"] = await rig.does("CreateVolume", create("pvc-restored", 2, snapshot=BACKUP))
    deleted = await rig.does("DeleteVolume", delete("pvc-restored"))
    left = await rig.client.list(kinds.REMOTE_RESTORE, NAMESPACE)
    did["deletes what was restored"] = did["restores backups"] and deleted and left == []
    did["deletes backups"] = await rig.does("DeleteSnapshot", delete_snapshot(BACKUP))
    did["restores snapshots"] = await rig.does("CreateVolume", create("restored-1", 2, snapshot="snap-1"))
    did["deletes snapshots"] = await rig.does("DeleteSnapshot", delete_snapshot("snap-1"))


async def _detach_of_what_is_gone(rig: RestrictedRig) -> bool:
    """Its VirtualMachine was deleted, and the instance still runs: the disk is taken from it, and not only gone with it."""
    if not await rig.does("ControllerPublishVolume", publish("data-1", "node-2")):
        return False
    await rig.client.delete(vm_ref("node-2"), propagation="Orphan")
    refused = rig.refused
    done = await rig.does("ControllerUnpublishVolume", unpublish("data-1", "node-2"))
    return done and rig.refused == refused


async def _use_before_1_8(rig: RestrictedRig, did: dict[str, bool]) -> None:
    await rig.does("CreateVolume", create("data-1"))
    did["attaches volumes before 1.8"] = await rig.does(
        "ControllerPublishVolume", publish("data-1", "node-1")
    )
    did["detaches volumes before 1.8"] = await rig.does(
        "ControllerUnpublishVolume", unpublish("data-1", "node-1")
    )


def objects_of(account: AddonAccount) -> list[Raw]:
    return [raw for _, raw in account.render_objects()]


@cache
def whole(version: str, account: AddonAccount = NARROW) -> Life:
    return run_driven(live(account, objects_of(account), version))


@pytest.mark.parametrize("version", [NEWEST, OLD])
@pytest.mark.parametrize(
    "account", [NARROW, AddonAccount("demo", NAMESPACE)], ids=["for the CSI driver only", "as the scripts"]
)
def test_with_the_account_s_rights_all_is_done_and_nothing_refused(
    account: AddonAccount, version: str
) -> None:
    life = whole(version, account)

    assert [what for what, came_about in life.did.items() if not came_about] == []
    assert life.refused == []


def test_the_table_has_every_right() -> None:
    assert sorted(rights_of(objects_of(NARROW), OF_ACCOUNT)) == sorted(ALL)
    assert set(NEEDED_FOR.values()) <= set(whole(NEWEST).did) | set(whole(OLD).did)


def test_each_right_is_asked_for() -> None:
    asked = whole(NEWEST).asked | whole(OLD).asked

    rights = set(rights_of(objects_of(NARROW), OF_ACCOUNT)) - OF_FENCING
    assert [str(right) for right in rights if not any(right.covers(one) for one in asked)] == []


@pytest.mark.parametrize("right", NEEDED_FOR, ids=str)
def test_without_it_something_is_missed(right: Permission, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)  # it complains, again and again
    outcome = NEEDED_FOR[right]
    version = OLD if outcome.endswith("before 1.8") else NEWEST

    life = run_driven(live(NARROW, without(objects_of(NARROW), right, OF_ACCOUNT), version))

    assert not life.did.get(outcome)
    # Of a volume that is not there the export is asked for; an account without shared volumes is refused that, without effect.
    refused = set(life.refused) - {"list networkfilesystems.harvesterhci.io in harvester-system"}
    assert refused == {str(one) for one in life.asked if right.covers(one)}


def test_no_right_outside_the_namespace_changes_or_lists_anything() -> None:
    wide = [right for right in rights_of(objects_of(NARROW), OF_ACCOUNT) if not right.namespace]

    assert {right.verb for right in wide} == {"get"}


def listed_rights() -> list[Permission]:
    page = (ROOT / "docs/reference/csi-driver.md").read_text()
    table = page.partition("## Rights on Harvester")[2].partition("\n## ")[0]
    found = []
    for verbs, resource, where in re.findall(r"^\| ([a-z, ]+) \| `([^`]+)` \| ([^|]+) \|", table, re.M):
        place, _, name = where.partition(", ")
        for verb in verbs.split(", "):
            found.append(
                Permission(verb, resource, NAMESPACE if place == "namespace" else "", name.strip("`"))
            )
    return found


def test_the_reference_lists_them() -> None:
    assert sorted(listed_rights()) == sorted(ALL)
