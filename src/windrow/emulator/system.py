"""System objects of a Harvester cluster: namespaces, settings, storage classes, roles, the VIP."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from windrow.emulator import kinds, names
from windrow.emulator.load_balancers.services import ADDRESSES
from windrow.emulator.release import Release
from windrow.kubernetes.objects import Raw, new_object
from windrow.kubernetes.resources import (
    CLUSTER_ROLE,
    CLUSTER_ROLE_BINDING,
    CONFIG_MAP,
    DEPLOYMENT,
    NAMESPACE,
    SERVICE,
    STORAGE_CLASS,
    ApiResource,
)

NAMESPACES = (
    names.SYSTEM_NAMESPACE,
    "harvester-public",
    "cattle-system",
    "fleet-local",
    "longhorn-system",
)

# Reference 05 §1.3: the defaults of the newest release, which apply while there is no value.
SETTINGS: dict[str, str] = {
    "overcommit-config": '{"cpu":1000,"memory":150,"storage":100}',
    "default-vm-termination-grace-period-seconds": "120",
    "additional-guest-memory-overhead-ratio": "1.5",
    "vm-force-reset-policy": '{"enable":true,"period":15,"vmMigrationTimeout":180}',
    "csi-driver-config": (
        '{"driver.longhorn.io":{"volumeSnapshotClassName":"longhorn-snapshot","backupVolumeSnapshotClassName":"longhorn"}}'
    ),
    "csi-online-expand-validation": '{"driver.longhorn.io":true}',
    "harvester-csi-ccm-versions": (
        '{"harvester-cloud-provider":">=0.0.1 <0.3.0","harvester-csi-provider":">=0.0.1 <0.3.0"}'
    ),
    "kubevirt-migration": (
        '{"parallelOutboundMigrationsPerNode":2,"parallelMigrationsPerCluster":5,'
        '"completionTimeoutPerGiB":150,"progressTimeout":150,"allowPostCopy":false}'
    ),
    "cluster-pod-security-standard": (
        '{"enabled":false,"whitelistedNamespacesList":"", "privilegedNamespacesList":"", "restrictedNamespacesList":""}'
    ),
    "storage-network": "",
    "rwx-network": "",
    "default-storage-class": "harvester-longhorn",
    "cluster-registration-url": "",
    "max-hotplug-ratio": "4",
    "support-bundle-timeout": "10",
    "kubeconfig-default-token-ttl-minutes": "0",
}


def settings_of(release: Release) -> dict[str, str]:
    """The settings of a release and their defaults."""
    made = dict(SETTINGS)
    if release.line < (1, 8):
        made["overcommit-config"] = '{"cpu":1600,"memory":150,"storage":200}'
        del made["rwx-network"]
    if release.line < (1, 7):
        made["vm-force-reset-policy"] = '{"enable":true,"period":300}'
        del made["kubevirt-migration"]
    return made


def system_objects(version: str, vip: str) -> Iterable[tuple[ApiResource, Raw]]:
    """All of them, in order of creation."""
    release = Release.of(version)
    for name in NAMESPACES:
        yield NAMESPACE, new_object(NAMESPACE, name)
    yield kinds.SETTING, new_object(kinds.SETTING, "server-version", value=version)
    for name, text in settings_of(release).items():
        setting = new_object(kinds.SETTING, name)
        yield kinds.SETTING, {**setting, "default": text} if text else setting
    default = {names.DEFAULT_CLASS: "true", **_RESERVED}
    yield STORAGE_CLASS, render_storage_class("harvester-longhorn", default)
    yield STORAGE_CLASS, render_storage_class("vmstate-persistence", _RESERVED)
    yield STORAGE_CLASS, render_storage_class("longhorn-static")
    for name, kind in (("longhorn", "bak"), ("longhorn-snapshot", "snap")):
        fields: dict[str, Any] = {
            "driver": "driver.longhorn.io",
            "deletionPolicy": "Delete",
            "parameters": {"type": kind},
        }
        yield kinds.SNAPSHOT_CLASS, new_object(kinds.SNAPSHOT_CLASS, name, **fields)
    yield CLUSTER_ROLE, new_object(CLUSTER_ROLE, "harvesterhci.io:cloudprovider", rules=CLOUD_PROVIDER_RULES)
    yield CLUSTER_ROLE, new_object(CLUSTER_ROLE, "harvesterhci.io:csi-driver", rules=csi_rules(release))
    for name, roles, rules in AGGREGATED:
        labels = {f"rbac.authorization.k8s.io/aggregate-to-{role}": "true" for role in roles.split()}
        yield CLUSTER_ROLE, new_object(CLUSTER_ROLE, name, labels=labels, rules=rules)
    yield CLUSTER_ROLE, new_object(CLUSTER_ROLE, AUTHENTICATED, rules=AUTHENTICATED_RULES)
    yield CLUSTER_ROLE_BINDING, render_authenticated()
    yield CONFIG_MAP, render_vip(vip)
    ready = {"conditions": [{"type": "ready", "status": "True"}]}
    yield kinds.CLUSTER_NETWORK, new_object(kinds.CLUSTER_NETWORK, "mgmt", status=ready)
    featured = FEATURE_GATES if release.has_declarative_hotplug else LEGACY_FEATURE_GATES
    gates = {"configuration": {"developerConfiguration": {"featureGates": featured}}}
    yield kinds.KUBEVIRT, new_object(kinds.KUBEVIRT, "kubevirt", names.SYSTEM_NAMESPACE, spec=gates)


def component_objects(version: str, vip: str) -> Iterable[tuple[ApiResource, Raw]]:
    """What other clients look for before they take this for a Harvester."""
    yield SERVICE, render_ingress_service(Release.of(version), vip)
    yield DEPLOYMENT, render_harvester(version)


FEATURE_GATES = [
    "CPUManager",
    "DeclarativeHotplugVolumes",
    "ExpandDisks",
    "EnableVirtioFsConfigVolumes",
    "HostDevices",
]
LEGACY_FEATURE_GATES = [  # of 1.6 and 1.7
    "LiveMigration",
    "HotplugVolumes",
    "HostDevices",
    "GPU",
    "CPUManager",
    "VMPersistentState",
    "VMLiveUpdateFeatures",
    "ExpandDisks",
]


def render_vip(vip: str) -> Raw:
    data = {
        "enabled": "true",
        "ip": vip,
        "loadBalancerIP": vip,
        "mode": "static",
        "serviceType": "LoadBalancer",
        "hwAddress": "",
    }
    return new_object(CONFIG_MAP, names.VIP_CONFIG_MAP, names.SYSTEM_NAMESPACE, data=data)


def render_ingress_service(release: Release, vip: str) -> Raw:
    """The Service of the VIP, from which clients take the address of the API: in front of the hosts' ingress controller."""
    name, app = names.INGRESS_SERVICE, "rke2-ingress-nginx"
    if release.has_traefik:
        name = app = names.TRAEFIK_SERVICE
    ports = [("https-internal", 443), ("http", 80)]
    return new_object(
        SERVICE,
        name,
        "kube-system",
        annotations={"kube-vip.io/ignore-service-security": "true", ADDRESSES: vip},
        spec={
            "type": "LoadBalancer",
            "selector": {"app.kubernetes.io/name": app},
            "ports": [{"name": name, "port": port, "targetPort": port} for name, port in ports],
        },
    )


def render_harvester(version: str) -> Raw:
    """The Deployment of Harvester's API server. Clients read from its status whether this is a Harvester at work."""
    labels = {"app.kubernetes.io/name": "harvester", "app.kubernetes.io/component": "apiserver"}
    container = {"name": "apiserver", "image": f"rancher/harvester:{version}"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
    return new_object(
        DEPLOYMENT, names.HARVESTER_DEPLOYMENT, names.SYSTEM_NAMESPACE, labels=labels, spec=spec
    )


def deployment_status(now: str) -> Raw:
    """The status of a Deployment whose one pod runs since `now`."""
    condition = {"status": "True", "lastUpdateTime": now, "lastTransitionTime": now}
    return {
        "observedGeneration": 1,
        **dict.fromkeys(("replicas", "updatedReplicas", "readyReplicas", "availableReplicas"), 1),
        "conditions": [
            {"type": "Available", "reason": "MinimumReplicasAvailable", **condition},
            {"type": "Progressing", "reason": "NewReplicaSetAvailable", **condition},
        ],
    }


LONGHORN_PARAMETERS = {"migratable": "true", "numberOfReplicas": "3", "staleReplicaTimeout": "30"}
_RESERVED = {"harvesterhci.io/is-reserved-storageclass": "true"}


def render_storage_class(name: str, annotations: Mapping[str, str] | None = None, **parameters: str) -> Raw:
    """A Longhorn StorageClass; `parameters` come on top of the usual ones."""
    return new_object(
        STORAGE_CLASS,
        name,
        annotations=annotations,
        provisioner="driver.longhorn.io",
        parameters={**LONGHORN_PARAMETERS, **parameters},
        reclaimPolicy="Delete",
        volumeBindingMode="Immediate",
        allowVolumeExpansion=True,
    )


READ = "get,list,watch"


def _rule(groups: str, resources: str, verbs: str, names_: str = "") -> Raw:
    made: Raw = {
        "apiGroups": groups.split(","),
        "resources": resources.split(","),
        "verbs": verbs.split(","),
    }
    return {**made, "resourceNames": names_.split(",")} if names_ else made


# Alike in every release (reference 05 §6.1).
CLOUD_PROVIDER_RULES = [
    _rule("loadbalancer.harvesterhci.io", "loadbalancers", f"{READ},update,create,delete"),
    _rule(
        "subresources.kubevirt.io",
        "virtualmachines/addvolume,virtualmachines/removevolume,virtualmachineinstances/addvolume,"
        "virtualmachineinstances/removevolume,virtualmachineinstances/guestosinfo",
        "get,update",
    ),
    _rule("kubevirt.io", "virtualmachines,virtualmachineinstances", READ),
    _rule("", "pods", READ),
    _rule("", "persistentvolumeclaims,persistentvolumeclaims/status", "*"),
]


AUTHENTICATED = "harvester-authenticated"
PUBLIC_SETTINGS = "server-version,default-storage-class,harvester-csi-ccm-versions,default-vm-termination-grace-period-seconds"
AUTHENTICATED_RULES = [_rule("harvesterhci.io", "settings", "get,watch", PUBLIC_SETTINGS)]


def render_authenticated() -> Raw:
    """Every authenticated user reads these settings (reference 03 §1.2)."""
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": AUTHENTICATED}
    everyone = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:authenticated"}
    return new_object(CLUSTER_ROLE_BINDING, AUTHENTICATED, roleRef=role, subjects=[everyone])


def csi_rules(release: Release) -> list[Raw]:
    """The role of guests' CSI drivers, as each release ships it."""
    files = "networkfilesystems,networkfilesystems/status"
    remote = ",volumeremotebackups,volumeremoterestores" if release.line >= (1, 8) else ""
    settings = "csi-online-expand-validation" + (",csi-driver-config" if release.line >= (1, 7) else "")
    made = [
        _rule("storage.k8s.io", "storageclasses,volumeattachments", READ),
        _rule("harvesterhci.io", files + remote, "*"),
        _rule("harvesterhci.io", "settings", "get,list", settings),
        _rule("longhorn.io", "volumes,volumes/status", "get,list"),
    ]
    if release.line >= (1, 7):
        snapshots = (
            "volumesnapshots,volumesnapshotcontents,volumesnapshotclasses,volumesnapshots/status,"
            "volumesnapshotcontents/status"
        )
        made.append(_rule("snapshot.storage.k8s.io", snapshots, "*"))
    if release.line >= (1, 8):
        made.append(_rule("kubevirt.io", "virtualmachines", "patch"))
    return made


_HARVESTER_KINDS = "keypairs,virtualmachineimages,virtualmachinetemplates,virtualmachinetemplateversions"
_KUBEVIRT_KINDS = "virtualmachines,virtualmachineinstances"
_MIGRATIONS = "virtualmachineinstancemigrations"
_POWER = "virtualmachines/start,virtualmachines/stop,virtualmachines/restart"
_GUEST_INFO = "virtualmachineinstances/guestosinfo,virtualmachineinstances/userlist,virtualmachineinstances/filesystemlist"

# Name, the built-in roles that its rules are added to, rules.
AGGREGATED: tuple[tuple[str, str, list[Raw]], ...] = (
    (
        "harvesterhci.io:edit",
        "admin edit",
        [
            _rule("harvesterhci.io", _HARVESTER_KINDS, "*"),
            _rule("k8s.cni.cncf.io", "network-attachment-definitions", "*"),
        ],
    ),
    (
        "harvesterhci.io:view",
        "view",
        [
            _rule("harvesterhci.io", _HARVESTER_KINDS, READ),
            _rule("k8s.cni.cncf.io", "network-attachment-definitions", READ),
            _rule("", "secrets", READ),
        ],
    ),
    (
        "kubevirt.io:edit",
        "admin edit",
        [
            _rule("kubevirt.io", _KUBEVIRT_KINDS, "*"),
            _rule("kubevirt.io", _MIGRATIONS, READ),
            _rule("subresources.kubevirt.io", _POWER, "update"),
            _rule("subresources.kubevirt.io", _GUEST_INFO, "get"),
        ],
    ),
    ("kubevirt.io:view", "view", [_rule("kubevirt.io", f"{_KUBEVIRT_KINDS},{_MIGRATIONS}", READ)]),
    ("kubevirt.io:migrate", "", [_rule("kubevirt.io", _MIGRATIONS, "*")]),
)
