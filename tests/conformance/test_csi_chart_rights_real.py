"""The rights in the guest that the CSI driver's chart renders are enough for the real side-cars and our driver, and none is too many.

The side-cars get the chart's account and the chart's arguments. A real API server judges them, and its audit log has what they
asked for. csi-provisioner and csi-resizer are run where `WINDROW_CSI_SIDE_CARS` names a folder that has them; what only they do is
not asked for else.
"""

from __future__ import annotations

import asyncio
import os
import re
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
from tests.conformance.chart_rig import NAMESPACE as SYSTEM
from tests.conformance.chart_rig import ROOT, Helm
from tests.conformance.chart_rights_rig import KINDS, Permission, rights_of
from tests.conformance.cloud_provider_rig import Guest, a_host, eventually
from tests.conformance.csi_driver_objects import NAMESPACE, NODE, OTHER_NODE
from tests.conformance.csi_driver_rig import a_driver, our_program, require_namespaces
from tests.conformance.real_cluster import Cluster, a_real_cluster
from tests.conformance.test_chart_rights_real import token_of
from tests.conformance.test_csi_chart import CHART, NAME, SNAPSHOTS, containers_of
from tests.conformance.test_csi_sidecars import (
    POD,
    Town,
    account,
    install,
    snapshot_and_delete_it,
    supervised,
)

from windrow.app.clock import SystemClock
from windrow.client.client import Client
from windrow.client.http_transport import HttpTransport
from windrow.core.formats.json import loads
from windrow.emulator import kinds
from windrow.kubernetes.kubeconfig import ClientConfig, render_kubeconfig
from windrow.kubernetes.objects import Raw, nested, new_object
from windrow.kubernetes.resources import PVC, STORAGE_CLASS

pytestmark = [pytest.mark.go, pytest.mark.root, pytest.mark.timeout(240)]

FOLDER = os.environ.get("WINDROW_CSI_SIDE_CARS", "")
FENCING = "the driver, for a Node whose VM was shut down"  # here all VMs run
PROVISIONER, RESIZER = "csi-provisioner", "csi-resizer"
OTHERS = {"csi-attacher", "csi-snapshotter", "driver"}
GIVEN = {
    name: f"{FOLDER}/{name}" for name in (PROVISIONER, RESIZER) if FOLDER and Path(FOLDER, name).exists()
}
PRESENT = OTHERS | set(GIVEN)
LEASES, SNAPSHOT_API = "leases.coordination.k8s.io", "snapshot.storage.k8s.io"
VOLUMES, CLAIMS = "persistentvolumes", "persistentvolumeclaims"

# What csi-provisioner asks for from 6.2 on, and goes on without; the chart has an earlier one.
OPTIONAL = {Permission(verb, f"volumesnapshots.{SNAPSHOT_API}") for verb in ("list", "watch", "update")}

USED_BY = {
    Permission("get", VOLUMES): {PROVISIONER},
    Permission("list", VOLUMES): {"csi-attacher"},
    Permission("watch", VOLUMES): {"csi-attacher"},
    Permission("create", VOLUMES): {PROVISIONER},
    Permission("patch", VOLUMES): {"csi-attacher"},
    Permission("delete", VOLUMES): {PROVISIONER},
    Permission("list", CLAIMS): {PROVISIONER, RESIZER},
    Permission("watch", CLAIMS): {PROVISIONER, RESIZER},
    Permission("update", CLAIMS): {PROVISIONER},
    Permission("patch", f"{CLAIMS}/status"): {RESIZER},
    Permission("list", "storageclasses.storage.k8s.io"): {PROVISIONER},
    Permission("watch", "storageclasses.storage.k8s.io"): {PROVISIONER},
    Permission("get", "nodes"): {"csi-provisioner before 6"},
    Permission("update", "nodes"): {FENCING},
    Permission("list", "nodes"): {"driver"},
    Permission("watch", "nodes"): {"driver"},
    Permission("list", "csinodes.storage.k8s.io"): {"csi-attacher"},
    Permission("watch", "csinodes.storage.k8s.io"): {"csi-attacher"},
    Permission("list", "volumeattachments.storage.k8s.io"): {"csi-attacher"},
    Permission("watch", "volumeattachments.storage.k8s.io"): {"csi-attacher"},
    Permission("patch", "volumeattachments.storage.k8s.io"): {"csi-attacher"},
    Permission("patch", "volumeattachments.storage.k8s.io/status"): {"csi-attacher"},
    Permission("get", f"volumesnapshots.{SNAPSHOT_API}"): {PROVISIONER},
    Permission("get", f"volumesnapshotcontents.{SNAPSHOT_API}"): {"csi-snapshotter"},
    Permission("list", f"volumesnapshotcontents.{SNAPSHOT_API}"): {"csi-snapshotter"},
    Permission("watch", f"volumesnapshotcontents.{SNAPSHOT_API}"): {"csi-snapshotter"},
    Permission("patch", f"volumesnapshotcontents.{SNAPSHOT_API}"): {"csi-snapshotter"},
    Permission("update", f"volumesnapshotcontents.{SNAPSHOT_API}/status"): {"csi-snapshotter"},
    Permission("patch", f"volumesnapshotcontents.{SNAPSHOT_API}/status"): {"csi-snapshotter"},
    Permission("list", f"volumesnapshotclasses.{SNAPSHOT_API}"): {"csi-snapshotter"},
    Permission("watch", f"volumesnapshotclasses.{SNAPSHOT_API}"): {"csi-snapshotter"},
    Permission("create", "events"): {"csi-attacher"},
    Permission("patch", "events"): {PROVISIONER},
    Permission("create", LEASES, SYSTEM): {"csi-attacher"},
    Permission("get", "services", "default", "kubernetes"): {"driver"},
    Permission("get", LEASES, SYSTEM, "harvester-csi-node-monitor"): {"driver"},
    Permission("update", LEASES, SYSTEM, "harvester-csi-node-monitor"): {"driver"},
    **{
        Permission(verb, LEASES, SYSTEM, name): {who}
        for verb in ("get", "update")
        for who, name in (
            (PROVISIONER, "driver-harvesterhci-io"),
            ("csi-attacher", "external-attacher-leader-driver-harvesterhci-io"),
            (RESIZER, "external-resizer-driver-harvesterhci-io"),
            ("csi-snapshotter", "external-snapshotter-leader-driver-harvesterhci-io"),
        )
    },
}


@pytest.fixture
def objects(reference_program: Callable[[str], str], tmp_path: Path) -> list[Raw]:
    return Helm(reference_program("helm"), tmp_path, CHART).render(
        {"controller": {"fenceNodes": True}}, apis=[SNAPSHOTS]
    )


@pytest.fixture
def own_cluster(
    reference_program: Callable[[str], str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    """A cluster whose Nodes no other test makes."""
    with a_real_cluster(reference_program, tmp_path_factory.mktemp("guest"), managed=True) as made:
        yield made


def test_the_table_has_every_right(objects: list[Raw]) -> None:
    assert sorted(rights_of(objects, NAME)) == sorted(USED_BY)


def audited(cluster: Cluster, user: str) -> Iterator[tuple[Permission, int]]:
    """What the account asked for, and the code of the answer."""
    for line in cluster.audit.read_text().splitlines():
        raw = loads(line)
        if nested(raw, "user", "username") != user or "objectRef" not in raw:
            continue
        about = raw["objectRef"]
        group, sub = about.get("apiGroup", ""), about.get("subresource", "")
        resource = f"{about['resource']}{f'.{group}' if group else ''}{f'/{sub}' if sub else ''}"
        asked = Permission(raw["verb"], resource, about.get("namespace", ""), about.get("name", ""))
        yield asked, int(nested(raw, "responseStatus", "code", default=0))


def is_use(right: Permission, asked: Permission) -> bool:
    """client-go reads a list by a watch, where the server can, and lists where it cannot."""
    streamed = replace(right, verb="watch") if right.verb == "list" else right
    return right.covers(asked) or streamed.covers(asked)


@asynccontextmanager
async def a_restricted_town(
    cluster: Cluster, folder: Path, objects: Sequence[Raw], find_program: Callable[[str], str]
) -> AsyncIterator[Town]:
    """The driver and its side-cars, with the account and the arguments of the chart."""
    definitions = Path(find_program("csi_sidecars.definitions"))
    programs = {name: find_program(name) for name in ("csi-attacher", "csi-snapshotter")}
    programs |= GIVEN
    controller = find_program("snapshot-controller")
    require_namespaces()
    fences = ("--fence-nodes",)
    async with AsyncExitStack() as stack:
        host = await stack.enter_async_context(a_host())
        transport = await stack.enter_async_context(HttpTransport(cluster.access(), SystemClock()))
        short = stack.enter_context(tempfile.TemporaryDirectory(prefix="csi-"))
        client, socket = Client(transport), Path(short) / "csi.sock"
        for name in (NODE, OTHER_NODE):
            await host.make_vm(name)
        for raw in objects:
            if raw["kind"] in KINDS:
                await client.create(KINDS[raw["kind"]], raw)
        token = await token_of(client, NAME, SYSTEM)
        access = ClientConfig(cluster.url, ca=cluster.access().ca, token=token)
        kubeconfig, admin = folder / "chart.kubeconfig", folder / "admin.kubeconfig"
        kubeconfig.write_text(render_kubeconfig(access, "guest"))
        admin.write_text(await account(client, cluster))
        await install(client, definitions)
        for raw in objects:
            if raw["kind"] == "StorageClass":
                await client.create(STORAGE_CLASS, raw)
        town = Town(
            host,
            Guest(client, transport, kubeconfig.read_text()),
            client,
            lambda: a_driver(
                our_program(), folder, host.kubeconfig, kubeconfig.read_text(), NODE, *fences, socket=socket
            ),
            folder,
        )
        await stack.enter_async_context(town.drivers)
        await town.start_driver()
        rendered = containers_of(list(objects))
        commands = [
            (
                program,
                *(one for one in rendered[name]["args"] if not one.startswith("--csi-address=")),
                f"--csi-address={socket}",
                f"--kubeconfig={kubeconfig}",
                "--retry-interval-start=200ms",
                "--retry-interval-max=2s",
                "--v=3",
            )
            for name, program in programs.items()
        ]
        for argv in (*commands, (controller, f"--kubeconfig={admin}")):
            log = folder / f"{Path(argv[0]).name}.log"
            await stack.enter_async_context(supervised(log, *argv))
        try:
            yield town
        except BaseException:
            for log in sorted(folder.glob("*.log")):  # noqa: ASYNC240
                print(f"--- {log.name}\n{log.read_text(errors='replace')[-3000:]}")
            raise


async def test_the_real_side_cars_do_their_work_with_these_rights_and_are_refused_nothing(
    own_cluster: Cluster,
    tmp_path: Path,
    objects: list[Raw],
    reference_program: Callable[[str], str],
) -> None:
    user = f"system:serviceaccount:{SYSTEM}:{NAME}"
    async with a_restricted_town(own_cluster, tmp_path, objects, reference_program) as town:
        await town.provision()
        await town.start_pod("app-1", NODE)
        await town.until_attached(NODE)
        await snapshot_and_delete_it(town)
        if PROVISIONER in GIVEN:
            await use_provisioner(town)
        await town.client.delete(POD.ref("app-1", NAMESPACE))
        await town.until_detached()
        await asyncio.sleep(6)  # a Lease is renewed every five seconds
    found = list(audited(own_cluster, user))

    refused = {asked for asked, code in found if code == 403}
    assert [str(one) for one in refused if not any(right.covers(one) for right in OPTIONAL)] == []
    expected = {right for right, users in USED_BY.items() if users & PRESENT}
    unused = [right for right in expected if not any(is_use(right, asked) for asked, _ in found)]
    assert sorted(map(str, unused)) == []


async def use_provisioner(town: Town) -> None:
    """Claims by every way that csi-provisioner has, one of which grows."""
    late = {"provisioner": "driver.harvesterhci.io", "volumeBindingMode": "WaitForFirstConsumer"}
    await town.client.create(STORAGE_CLASS, new_object(STORAGE_CLASS, "late", **late))
    snapshot = {"volumeSnapshotClassName": "snapshots", "source": {"persistentVolumeClaimName": "data"}}
    await town.client.create(kinds.SNAPSHOT, new_object(kinds.SNAPSHOT, "kept", NAMESPACE, spec=snapshot))
    await claim(town, "empty")
    await claim(town, "copy", {"kind": "PersistentVolumeClaim", "name": "empty"})
    await claim(
        town, "restored", {"apiGroup": SNAPSHOT_API, "kind": "VolumeSnapshot", "name": "kept"}, size="2Gi"
    )
    await claim(town, "waits", storage_class="late", node=NODE)
    if RESIZER in GIVEN:
        await grow(town, "empty")
    for name in ("copy", "restored", "waits", "empty"):
        volume = (await town.client.get(PVC.ref(name, NAMESPACE)))["spec"]["volumeName"]
        await town.client.delete(PVC.ref(name, NAMESPACE))

        async def is_gone(volume: str = volume) -> bool:
            return await town.client.find(kinds.PV.ref(volume)) is None

        await eventually(is_gone, f"the volume of {name} is gone", 60)


async def grow(town: Town, name: str) -> None:
    """As far as csi-resizer does it: the filesystem is the kubelet's."""
    wider = {"spec": {"resources": {"requests": {"storage": "3Gi"}}}}
    await town.client.patch(PVC.ref(name, NAMESPACE), wider)

    async def has_grown() -> bool:
        raw = await town.client.get(PVC.ref(name, NAMESPACE))
        volume = await town.client.get(kinds.PV.ref(raw["spec"]["volumeName"]))
        conditions = [one["type"] for one in nested(raw, "status", "conditions", default=[])]
        return volume["spec"]["capacity"]["storage"] == "3Gi" and "FileSystemResizePending" in conditions

    await eventually(has_grown, "the volume has grown", 60)


async def claim(
    town: Town,
    name: str,
    source: Raw | None = None,
    *,
    size: str = "1Gi",
    storage_class: str = "harvester",
    node: str = "",
) -> None:
    """A claim, once it is bound."""
    spec: Raw = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": size}},
        "storageClassName": storage_class,
        **({"dataSource": source} if source else {}),
    }
    chosen = {"volume.kubernetes.io/selected-node": node} if node else {}  # as the scheduler writes it
    await town.client.create(PVC, new_object(PVC, name, NAMESPACE, annotations=chosen, spec=spec))

    async def is_bound() -> bool:
        raw = await town.client.get(PVC.ref(name, NAMESPACE))
        return nested(raw, "status", "phase") == "Bound"

    await eventually(is_bound, f"claim {name} is bound", 60)


# --- what the documentation says of them ----------------------------------------------------------------------------


def listed_rights() -> Iterator[Permission]:
    page = (ROOT / "docs/reference/csi-driver.md").read_text()
    table = page.partition("## Rights in the guest")[2].partition("\n## ")[0]
    for verbs, resource, where in re.findall(r"^\| ([a-z, ]+) \| `([^`]+)` \| ([^|]+) \|", table, re.M):
        namespace, *names = where.split(", ")
        place = {"everywhere": "", "the release's": SYSTEM}.get(namespace, namespace)
        for verb, name in product(verbs.split(", "), names or [""]):
            yield Permission(verb, resource, place, name.strip("`"))


def test_the_reference_lists_them() -> None:
    assert sorted(listed_rights()) == sorted(USED_BY)
