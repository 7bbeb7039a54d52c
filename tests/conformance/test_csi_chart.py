"""helm's judgement of the CSI driver's chart, and what the chart makes of the original's values."""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from scripts.chart import CSI_DRIVER, chart_files, pack, unpack
from scripts.chart import main as chart_of
from tests.conformance.chart_rig import (
    CHARTS,
    KUBERNETES,
    NAMESPACE,
    ORIGINALS,
    Helm,
    Refused,
    of_kind,
    pod_of,
    the,
)
from tests.conformance.chart_rights_rig import Permission, rights_of
from tests.conformance.test_charts import keys

from windrow import __version__
from windrow.bootstrap.charts import CREDENTIAL_KEY, CREDENTIAL_SECRET, Charts, harvester_values
from windrow.core.formats.yaml import load, load_all
from windrow.csi.cmd.arguments import Options, parse_arguments
from windrow.kubernetes.objects import Raw, nested

pytestmark = pytest.mark.go

NAME = "harvester-csi-driver"
CONTROLLERS = f"{NAME}-controllers"
CHART = CHARTS / NAME
ORIGINAL = ORIGINALS / f"{NAME}.values.yaml"
SNAPSHOTS = "snapshot.storage.k8s.io/v1"
BY_SECRET = {"cloudConfig": {"secretName": CREDENTIAL_SECRET}}
EVERYTHING: dict[str, Any] = {
    "replicasCount": 2,
    "hostStorageClass": "fast",
    "kubeletRootDir": "/data/kubelet/",
    "global": {
        "cattle": {"systemDefaultRegistry": "registry.local:5000", "imagePullSecrets": ["a", {"name": "b"}]}
    },
    "extraArgs": ["--debug"],
    "controller": {
        "fenceNodes": True,
        "affinity": None,
        "resources": {"limits": {"memory": "128Mi"}},
        "extraEnv": [{"name": "HTTPS_PROXY", "value": "http://10.0.0.1:3128"}],
        "podAnnotations": {"c": "d"},
        "podLabels": {"e": "f"},
        "podSecurityContext": {"runAsUser": 7},
    },
    "node": {
        "resources": {"limits": {"memory": "64Mi"}},
        "podAnnotations": {"g": "h"},
        "podLabels": {"i": "j"},
        "tolerations": [{"key": "mine", "operator": "Exists"}],
    },
    **{
        part: {"extraArgs": ["--v=5"], "resources": {"requests": {"cpu": "10m"}}}
        for part in ("provisioner", "attacher", "resizer", "snapshotter", "nodeDriverRegistrar")
    },
    "storageClass": {
        "isDefault": False,
        "parameters": {"hostStorageClass": "longhorn-fast"},
        "reclaimPolicy": "Retain",
        "volumeBindingMode": "WaitForFirstConsumer",
    },
    "snapshots": {
        "enabled": True,
        "isDefault": False,
        "deletionPolicy": "Retain",
        "parameters": {"type": "snapshot"},
    },
}
SHAPES: dict[str, Mapping[str, Any]] = {
    "nothing set": {},
    "K3s": {"cloudConfig": {"hostPath": "/var/lib/rancher/k3s/etc/config-files/"}},
    "credential in a Secret": BY_SECRET,
    "everything": EVERYTHING,
    "keys taken out": {
        "global": None,
        "tolerations": None,
        "node": {"tolerations": None},
        "nodeSelector": None,
    },
    "no classes": {"storageClass": {"create": False}, "snapshots": {"enabled": False}},
    "other names": {"nameOverride": "csi", "fullnameOverride": "my-csi"},
}


@pytest.fixture(scope="module")
def helm(reference_program: Callable[[str], str], tmp_path_factory: pytest.TempPathFactory) -> Helm:
    return Helm(reference_program("helm"), tmp_path_factory.mktemp("helm"), CHART)


@pytest.fixture(scope="module")
def original() -> Path:
    if not ORIGINAL.exists():
        pytest.skip("the original's values are not beside this tree (shared/charts)")
    return ORIGINAL


def containers_of(objects: list[Raw], kind: str = "Deployment", name: str = CONTROLLERS) -> dict[str, Raw]:
    return {one["name"]: one for one in pod_of(objects, kind, name)["containers"]}


def volumes_of(pod: Raw) -> dict[str, Raw]:
    return {one["name"]: one for one in pod["volumes"]}


@pytest.mark.parametrize("shape", SHAPES)
def test_helm_finds_nothing_in_it_whatever_the_values(helm: Helm, shape: str) -> None:
    said = helm.lint("--values", str(helm.file(SHAPES[shape])))

    assert "WARNING" not in said


def test_our_archive_holds_what_helm_packs_and_renders_alike(helm: Helm, tmp_path: Path) -> None:
    packed = pack(chart_files(CSI_DRIVER.folder))
    ours = tmp_path / "ours.tgz"
    ours.write_bytes(packed)

    helm.run("package", str(CHART), "--destination", str(tmp_path))
    [theirs] = tmp_path.glob(f"{NAME}-*.tgz")

    assert set(unpack(packed)) == set(unpack(theirs.read_bytes()))
    argv = ("--kube-version", KUBERNETES, "--namespace", NAMESPACE)
    assert helm.run("template", NAME, str(ours), *argv) == helm.run("template", NAME, str(CHART), *argv)


def test_the_chart_is_of_this_version_of_windrow() -> None:
    chart = load((CHART / "Chart.yaml").read_text())

    assert chart["appVersion"] == __version__


# --- the original's values ------------------------------------------------------------------------------------------


def test_every_key_of_the_original_s_values_stands_in_ours(original: Path) -> None:
    assert keys(load(original.read_text())) <= keys(load((CHART / "values.yaml").read_text()))


def test_what_both_set_is_set_alike_but_for_the_driver_s_own_image(original: Path) -> None:
    theirs, ours = (load(path.read_text()) for path in (original, CHART / "values.yaml"))
    of_driver = theirs["image"].pop("harvester"), ours["image"].pop("harvester")

    assert {key: ours[key] for key in theirs if key != "cloudConfig"} == {
        key: theirs[key] for key in theirs if key != "cloudConfig"
    }
    assert ours["cloudConfig"] == {**theirs["cloudConfig"], "secretKey": "cloud-provider-config"}
    assert of_driver[1]["csiDriver"] == {"repository": f"windrow/{NAME}", "tag": ""}


def test_the_original_s_values_are_rendered_as_they_say(helm: Helm, original: Path) -> None:
    values = load(original.read_text())
    objects = helm.render(original, apis=[SNAPSHOTS])

    images = {name: one["image"] for name, one in containers_of(objects).items()}
    images |= {name: one["image"] for name, one in containers_of(objects, "DaemonSet", NAME).items()}
    told = {
        f"{one['repository']}:{one['tag']}"
        for one in (values["image"]["harvester"]["csiDriver"], *values["image"]["csi"].values())
    }
    assert set(images.values()) == told
    assert images[NAME] == "rancher/harvester-csi-driver:master-head"
    pod = pod_of(objects, name=CONTROLLERS)
    assert the(objects, "Deployment", CONTROLLERS)["spec"]["replicas"] == values["replicasCount"]
    assert pod["tolerations"] == values["tolerations"]
    assert pod["nodeSelector"] == values["nodeSelector"]
    assert volumes_of(pod)["cloud-config"]["hostPath"] == {
        "path": values["cloudConfig"]["hostPath"],
        "type": "Directory",
    }


def test_names_and_selectors_are_the_original_s_so_that_it_is_replaced_in_place(helm: Helm) -> None:
    """reference/03 §1.5: a selector cannot be changed, and a Deployment of another name would run beside the original's."""
    objects = helm.render()

    for kind, name, component in (
        ("Deployment", CONTROLLERS, "csi-controllers"),
        ("DaemonSet", NAME, "csi-driver"),
    ):
        assert the(objects, kind, name)["spec"]["selector"]["matchLabels"] == {
            "component": component,
            "app.kubernetes.io/name": NAME,
            "app.kubernetes.io/instance": NAME,
        }
    assert the(objects, "ServiceAccount", NAME)
    assert the(objects, "ClusterRoleBinding", NAME)["roleRef"]["name"] == NAME
    [driver] = of_kind(objects, "CSIDriver")
    assert driver["metadata"]["name"] == "driver.harvesterhci.io"
    assert driver["spec"] == {
        "attachRequired": True,
        "podInfoOnMount": True,
        "fsGroupPolicy": "ReadWriteOnceWithFSType",
        "volumeLifecycleModes": ["Persistent"],
    }


def test_the_original_s_side_cars_find_no_driver_without_a_controller(helm: Helm) -> None:
    """While one chart takes the other's place, both have pods on a node. csi-attacher marks every VolumeAttachment as done where
    the driver at its socket serves no controller."""
    objects = helm.render()

    directories = {
        nested(volume, "hostPath", "path", default="")
        for kind, name in (("DaemonSet", NAME), ("Deployment", CONTROLLERS))
        for volume in pod_of(objects, kind, name)["volumes"]
    }
    assert "/var/lib/kubelet/plugins/driver.harvesterhci.io" in directories
    assert not [path for path in directories if "harvester-plugins" in path]


# --- the programs' arguments ----------------------------------------------------------------------------------------


def options_of(container: Raw) -> Options:
    """The command line as the driver understands it; its environment is the image's."""
    told: list[str] = []
    arguments = [one.replace("$(NODE_ID)", "n1") for one in container["args"]]
    found = parse_arguments([NAME, *arguments], {}, "v0", told.append, told.append)
    assert isinstance(found, Options), told
    return found


@pytest.mark.parametrize("shape", SHAPES)
def test_the_driver_takes_its_arguments(helm: Helm, shape: str) -> None:
    objects = helm.render(SHAPES[shape])
    [deployment], [daemon_set] = of_kind(objects, "Deployment"), of_kind(objects, "DaemonSet")

    [controller], [node] = (
        [one for one in nested(raw, "spec", "template", "spec", "containers") if one["name"] == NAME]
        for raw in (deployment, daemon_set)
    )

    options = options_of(controller)
    assert (options.endpoint, options.node_id) == ("unix:///csi/csi.sock", "")
    assert options.kubeconfig == "/var/lib/harvester/cloud-provider-config"
    assert options.host_storage_class == SHAPES[shape].get("hostStorageClass", "")
    assert options_of(node) == Options(
        "unix:///csi/csi.sock", node_id="n1", kubeconfig="", host_storage_class="", debug=options.debug
    )


def test_side_cars_talk_to_the_driver_of_their_pod_and_elect_who_works(helm: Helm) -> None:
    objects = helm.render(apis=[SNAPSHOTS])
    pod = pod_of(objects, name=CONTROLLERS)

    found = containers_of(objects)
    assert list(found) == [NAME, "csi-provisioner", "csi-attacher", "csi-resizer", "csi-snapshotter"]
    for name in list(found)[1:]:
        assert {
            "--csi-address=/csi/csi.sock",
            "--timeout=1m50s",
            "--leader-election",
            "--leader-election-namespace=kube-system",
        } <= set(found[name]["args"]), name
        assert found[name]["volumeMounts"] == [{"name": "socket", "mountPath": "/csi"}]
    assert volumes_of(pod)["socket"] == {"name": "socket", "emptyDir": {}}
    assert {"--default-fstype=ext4", "--extra-create-metadata"} <= set(found["csi-provisioner"]["args"])
    assert "--handle-volume-inuse-error=false" in found["csi-resizer"]["args"]
    assert "--extra-create-metadata" in found["csi-snapshotter"]["args"]


@pytest.mark.parametrize(
    ("values", "container"),
    [
        ("provisioner", "csi-provisioner"),
        ("attacher", "csi-attacher"),
        ("resizer", "csi-resizer"),
        ("snapshotter", "csi-snapshotter"),
    ],
)
def test_each_side_car_has_its_own_values(helm: Helm, values: str, container: str) -> None:
    objects = helm.render(
        {
            values: {"extraArgs": ["--v=7"], "resources": {"limits": {"cpu": "1"}}},
            "image": {"csi": {values: {"repository": "mine", "tag": "1.10"}}},
        },
        apis=[SNAPSHOTS],
    )

    found = containers_of(objects)
    changed = {name for name, one in found.items() if one["image"] == "mine:1.10"}
    assert changed == {name for name, one in found.items() if one["args"][-1] == "--v=7"} == {container}
    assert found[container]["resources"] == {"limits": {"cpu": "1"}}


def test_kubelet_is_told_where_the_node_s_socket_is(helm: Helm) -> None:
    objects = helm.render({"kubeletRootDir": "/data/kubelet"})
    pod = pod_of(objects, "DaemonSet", NAME)

    folder = "/data/kubelet/plugins/driver.harvesterhci.io"
    [registrar] = [one for one in pod["containers"] if one["name"] == "node-driver-registrar"]
    assert f"--kubelet-registration-path={folder}/csi.sock" in registrar["args"]
    paths = {name: one["hostPath"]["path"] for name, one in volumes_of(pod).items() if "hostPath" in one}
    assert paths == {
        "socket": folder,
        "registration": "/data/kubelet/plugins_registry",
        "staging": "/data/kubelet/plugins/kubernetes.io/csi",
        "pods": "/data/kubelet/pods",
        "devices": "/dev",
    }


# --- least privilege ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", SHAPES)
def test_no_node_has_a_credential_for_harvester_nor_one_for_this_cluster(helm: Helm, shape: str) -> None:
    objects = helm.render(SHAPES[shape])

    [daemon_set] = of_kind(objects, "DaemonSet")
    pod = daemon_set["spec"]["template"]["spec"]
    assert pod["automountServiceAccountToken"] is False
    assert not [one for one in pod["volumes"] if {"secret", "projected"} & set(one)]
    assert not [
        one for one in pod["volumes"] if "config-files" in nested(one, "hostPath", "path", default="")
    ]
    subjects = [
        subject["name"]
        for raw in objects
        if raw["kind"] in ("RoleBinding", "ClusterRoleBinding")
        for subject in raw["subjects"]
    ]
    assert pod["serviceAccountName"] not in subjects


def test_what_mounts_is_privileged_and_nothing_else_is(helm: Helm) -> None:
    objects = helm.render(apis=[SNAPSHOTS])
    node = containers_of(objects, "DaemonSet", NAME)

    assert node[NAME]["securityContext"]["privileged"] is True
    others = [*containers_of(objects).values(), node["node-driver-registrar"]]
    for container in others:
        security = container["securityContext"]
        assert security["capabilities"] == {"drop": ["ALL"]}, container["name"]
        assert (security["allowPrivilegeEscalation"], security["readOnlyRootFilesystem"]) == (False, True)
    pod = pod_of(objects, "DaemonSet", NAME)
    assert not {"hostPID", "hostIPC"} & set(pod)
    assert "/" not in [nested(one, "hostPath", "path", default="") for one in pod["volumes"]]


def test_a_credential_in_a_secret_needs_no_root(helm: Helm) -> None:
    by_secret = pod_of(helm.render(BY_SECRET), name=CONTROLLERS)
    by_file = pod_of(helm.render(), name=CONTROLLERS)

    assert by_secret["securityContext"]["runAsNonRoot"] is True
    # The socket is its owner's alone: the driver and its side-cars are one user.
    assert not [one for one in by_secret["containers"] if "runAsUser" in one["securityContext"]]
    assert volumes_of(by_secret)["cloud-config"]["secret"] == {
        "secretName": CREDENTIAL_SECRET,
        "defaultMode": 0o440,
        "items": [{"key": "cloud-provider-config", "path": "cloud-provider-config"}],
    }
    assert by_file["securityContext"]["runAsUser"] == 0


def test_a_renewed_credential_reaches_the_pod(helm: Helm) -> None:
    """A mount by subPath, or of the file itself, would keep the old one."""
    for values in ({}, BY_SECRET):
        driver = containers_of(helm.render(values))[NAME]
        [mount] = [one for one in driver["volumeMounts"] if one["name"] == "cloud-config"]
        assert mount == {"name": "cloud-config", "mountPath": "/var/lib/harvester", "readOnly": True}


def test_pods_and_disks_come_and_go_after_the_node_s_pod_began(helm: Helm) -> None:
    driver = containers_of(helm.render(), "DaemonSet", NAME)[NAME]

    mounts = {one["mountPath"]: one.get("mountPropagation") for one in driver["volumeMounts"]}
    assert mounts["/var/lib/kubelet/pods"] == mounts["/var/lib/kubelet/plugins/kubernetes.io/csi"]
    assert mounts["/var/lib/kubelet/pods"] == "Bidirectional"
    assert "/dev" in mounts
    assert pod_of(helm.render(), "DaemonSet", NAME)["hostNetwork"] is True


def test_the_node_s_pod_runs_on_every_node_whatever_its_taints(helm: Helm) -> None:
    pod = pod_of(helm.render(), "DaemonSet", NAME)

    assert {"operator": "Exists"} in pod["tolerations"]
    assert pod["priorityClassName"] == "system-node-critical"


# --- classes --------------------------------------------------------------------------------------------------------


def test_the_storage_class_is_the_original_s_and_default_where_wanted(helm: Helm) -> None:
    default, other = (
        the(helm.render(values), "StorageClass", "harvester")
        for values in ({}, {"storageClass": {"isDefault": False}})
    )

    marks = [
        raw["metadata"]["annotations"]["storageclass.kubernetes.io/is-default-class"]
        for raw in (default, other)
    ]
    assert marks == ["true", "false"]
    for raw in (default, other):
        assert (raw["provisioner"], raw["allowVolumeExpansion"]) == ("driver.harvesterhci.io", True)
        assert (raw["reclaimPolicy"], raw["volumeBindingMode"]) == ("Delete", "Immediate")
        assert "parameters" not in raw


def test_classes_take_all_of_their_values(helm: Helm) -> None:
    objects = helm.render(EVERYTHING)

    storage = the(objects, "StorageClass", "harvester")
    wanted = EVERYTHING["storageClass"]
    assert {key: storage[key] for key in wanted if key != "isDefault"} == {
        key: wanted[key] for key in wanted if key != "isDefault"
    }
    [snapshots] = of_kind(objects, "VolumeSnapshotClass")
    assert snapshots["metadata"]["name"] == "harvester-snapshot"
    mark = snapshots["metadata"]["annotations"]["snapshot.storage.kubernetes.io/is-default-class"]
    assert (snapshots["deletionPolicy"], snapshots["parameters"], mark) == (
        "Retain",
        {"type": "snapshot"},
        "false",
    )


@pytest.mark.parametrize(
    ("enabled", "served", "expected"),
    [("", False, False), ("", True, True), (True, False, True), (False, True, False)],
)
def test_snapshots_are_served_where_their_definitions_are_or_as_the_user_says(
    helm: Helm, enabled: Any, served: bool, expected: bool
) -> None:
    """Without the definitions helm refuses the class, and csi-snapshotter ends again and again."""
    objects = helm.render({"snapshots": {"enabled": enabled}}, apis=[SNAPSHOTS] if served else [])

    assert bool(of_kind(objects, "VolumeSnapshotClass")) is expected
    assert ("csi-snapshotter" in containers_of(objects)) is expected


# --- mistakes and names ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"cloudConfig": {"hostPath": ""}}, "no credential for Harvester"),
        ({"cloudConfig": {"hostPath": "etc/x"}}, "is relative; write the absolute path"),
        (
            {"cloudConfig": {"hostPath": "/var/lib/rancher/rke2/etc/config-files/cloud-provider-config"}},
            "is the file; name its directory, /var/lib/rancher/rke2/etc/config-files/",
        ),
        ({"cloudConfig": {"secret": "x"}}, "additional properties 'secret' not allowed"),
        ({"kubeletRootDir": "kubelet"}, 'kubeletRootDir "kubelet" is no absolute path'),
        ({"kubeletRootDir": ""}, "is no absolute path"),
        ({"extraArgs": "--debug"}, "at '/extraArgs': got string, want array"),
        ({"image": {"csi": {"attacher": {"tag": 1.1}}}}, "at '/image/csi/attacher/tag': got number"),
        ({"image": {"csi": {"livenessProbe": {}}}}, "additional properties 'livenessProbe' not allowed"),
        ({"replicasCount": "two"}, "at '/replicasCount': got string, want integer"),
        ({"snapshots": {"enabled": "maybe"}}, "at '/snapshots/enabled'"),
        ({"storageClass": {"reclaimPolicy": "Recycle"}}, "at '/storageClass/reclaimPolicy'"),
        ({"hostStorageClass": "Fast!"}, "at '/hostStorageClass'"),
        (
            {"storageClass": {"parameters": {"hostStorageClas": "fast"}}},
            "at '/storageClass/parameters': additional properties 'hostStorageClas' not allowed",
        ),
        ({"storageClass": {"parameters": {"hostVolumeMode": "Block"}}}, "/parameters/hostVolumeMode'"),
        ({"storageClass": {"parameters": {"hostStorageClass": ""}}}, "/parameters/hostStorageClass'"),
        (
            {"snapshots": {"parameters": {"typ": "backup"}}},
            "at '/snapshots/parameters': additional properties 'typ' not allowed",
        ),
        ({"snapshots": {"parameters": {"type": "backups"}}}, "at '/snapshots/parameters/type'"),
    ],
)
def test_a_mistake_in_the_values_is_told(helm: Helm, values: Raw, said: str) -> None:
    with pytest.raises(Refused, match=re.escape(said)):
        helm.render(values)


def test_names_that_a_user_gives_are_used_everywhere(helm: Helm) -> None:
    objects = helm.render({"fullnameOverride": "mine", "nameOverride": "csi"}, namespace="here")

    others = {raw["metadata"]["name"] for raw in objects if not raw["metadata"]["name"].startswith("mine")}
    assert others == {"driver.harvesterhci.io", "harvester"}  # as claims and PersistentVolumes name them
    assert pod_of(objects, name="mine-controllers")["serviceAccountName"] == "mine"
    assert pod_of(objects, "DaemonSet", "mine")["serviceAccountName"] == "mine-node"
    subject = {"kind": "ServiceAccount", "name": "mine", "namespace": "here"}
    bindings = [*of_kind(objects, "ClusterRoleBinding"), *of_kind(objects, "RoleBinding")]
    assert len(bindings) == 3
    assert all(one["subjects"] == [subject] for one in bindings)
    labels = the(objects, "Deployment", "mine-controllers")["spec"]["selector"]["matchLabels"]
    assert labels["app.kubernetes.io/name"] == "csi"
    budget = the(objects, "PodDisruptionBudget", "mine-controllers")
    assert budget["spec"]["selector"]["matchLabels"] == labels


@pytest.mark.parametrize("wanted", [True, False])
def test_nodes_are_tainted_only_where_the_user_asks_for_it(helm: Helm, wanted: bool) -> None:
    objects = helm.render({"controller": {"fenceNodes": wanted}})

    assert options_of(containers_of(objects)[NAME]).fence_nodes is wanted
    assert (Permission("update", "nodes") in rights_of(objects, NAME)) is wanted
    assert bool([raw for raw in objects if raw["metadata"]["name"] == f"{NAME}-fencing"]) is wanted


@pytest.mark.parametrize("namespace", ["kube-system", "here"])
def test_the_lease_of_who_taints_nodes_is_the_original_s_wherever_the_release_is(
    helm: Helm, namespace: str
) -> None:
    objects = helm.render({"controller": {"fenceNodes": True}}, namespace=namespace)

    rights = [right for right in rights_of(objects, NAME) if right.resource == "leases.coordination.k8s.io"]
    for verb in ("create", "get", "update"):
        needed = Permission(verb, "leases.coordination.k8s.io", "kube-system", "harvester-csi-node-monitor")
        assert len([right for right in rights if right.covers(needed)]) == 1, verb
    binding = the(objects, "RoleBinding", f"{NAME}-fencing")
    assert binding["metadata"]["namespace"] == "kube-system"
    assert binding["subjects"][0]["namespace"] == namespace


def test_a_single_pod_has_no_budget(helm: Helm) -> None:
    assert of_kind(helm.render({"replicasCount": 1}), "PodDisruptionBudget") == []


@pytest.mark.parametrize("registry", ["registry.local:5000", "registry.local:5000/"])
def test_the_registry_of_the_cluster_comes_before_every_image_once(helm: Helm, registry: str) -> None:
    image = {"harvester": {"csiDriver": {"repository": "registry.local:5000/mine/csi", "tag": "v1"}}}
    objects = helm.render(
        {"global": {"cattle": {"systemDefaultRegistry": registry}}, "image": image}, apis=[SNAPSHOTS]
    )

    images = [one["image"] for one in containers_of(objects).values()]
    images += [one["image"] for one in containers_of(objects, "DaemonSet", NAME).values()]
    assert len(images) == 7
    assert all(image.count("registry.local:5000/") == 1 for image in images)
    assert images[0] == "registry.local:5000/mine/csi:v1"


def test_pull_secrets_are_names_or_objects_as_in_the_original(helm: Helm) -> None:
    objects = helm.render({"global": {"cattle": {"imagePullSecrets": ["a", {"name": "b"}, {"name": "a"}]}}})

    for kind, name in (("Deployment", CONTROLLERS), ("DaemonSet", NAME)):
        assert pod_of(objects, kind, name)["imagePullSecrets"] == [{"name": "a"}, {"name": "b"}]
    assert "imagePullSecrets" not in pod_of(helm.render(), name=CONTROLLERS)


@pytest.mark.parametrize("shape", SHAPES)
def test_objects_are_in_a_namespace_or_belong_to_none(helm: Helm, shape: str) -> None:
    loose = {"ClusterRole", "ClusterRoleBinding", "CSIDriver", "StorageClass", "VolumeSnapshotClass"}

    for raw in helm.render(SHAPES[shape], apis=[SNAPSHOTS]):
        assert ("namespace" in raw["metadata"]) is (raw["kind"] not in loose), raw


def test_the_same_values_give_the_same_objects_for_every_version_of_kubernetes(helm: Helm) -> None:
    argv = ("template", NAME, str(CHART), "--namespace", NAMESPACE, "--kube-version")

    assert helm.run(*argv, "1.23.0") == helm.run(*argv, KUBERNETES)


# --- clusters that are given it -------------------------------------------------------------------------------------


def test_it_takes_the_values_that_windrow_gives_to_the_chart_of_that_name(helm: Helm) -> None:
    """What a Cluster's `chartValues` become for the bundled chart, our chart understands."""
    given = {NAME: {"hostStorageClass": "fast"}}
    values = harvester_values(
        given, cluster="demo", credential_file="/x", charts=Charts((0, 2, 14), (0, 1, 30))
    )[NAME]

    objects = helm.render(values)

    secret = volumes_of(pod_of(objects, name=CONTROLLERS))["cloud-config"]["secret"]
    assert secret["secretName"] == CREDENTIAL_SECRET
    assert secret["items"] == [{"key": CREDENTIAL_KEY, "path": "cloud-provider-config"}]
    assert "--host-storage-class=fast" in containers_of(objects)[NAME]["args"]


@pytest.mark.parametrize("distribution", ["k3s", "rke2"])
def test_a_cluster_that_is_given_the_manifest_gets_its_pods(
    helm: Helm, tmp_path: Path, capsys: pytest.CaptureFixture[str], distribution: str
) -> None:
    """What the Helm controller does with a HelmChart: unpack the content, render it with the values."""
    chart_of([f"--chart={NAME}", f"--distribution={distribution}", "--set=hostStorageClass=fast"])
    spec = load(capsys.readouterr().out)["spec"]
    archive, values = tmp_path / "chart.tgz", tmp_path / "values.yaml"
    archive.write_bytes(b64decode(spec["chartContent"]))
    values.write_text(spec["valuesContent"])

    argv = ("--kube-version", KUBERNETES, "--namespace", spec["targetNamespace"], "--values", str(values))
    objects = load_all(helm.run("template", NAME, str(archive), *argv))

    assert "--host-storage-class=fast" in containers_of(objects)[NAME]["args"]
    path = volumes_of(pod_of(objects, name=CONTROLLERS))["cloud-config"]["hostPath"]["path"]
    assert path == f"/var/lib/rancher/{distribution}/etc/config-files/"
    assert bool(of_kind(objects, "VolumeSnapshotClass")) is (distribution == "rke2")
