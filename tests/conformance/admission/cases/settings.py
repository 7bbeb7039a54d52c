"""Key pairs, networks, quotas, namespaces, templates and migrations: creations, changes, deletions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tests.conformance.admission.asking import Question
from tests.conformance.admission.cases.edits import REMOVE, Edits, edited
from tests.conformance.admission.world import (
    ClusterDump,
    a_network,
    a_secret,
    a_vm,
    a_volume,
    an_image,
    an_object,
    template_vm,
)

from windrow.core.formats.json import dumps, loads
from windrow.emulator import kinds
from windrow.kubernetes import resources
from windrow.kubernetes.objects import Raw

KEY = "spec.publicKey"
ED25519 = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGQw7+mTNoVY2dZFkT0u4hvnPMxs2h0kmqP8yH3n0l6V"
NEW_KEYS: Mapping[str, Edits] = {
    "as it is": {},
    "no comment": {KEY: ED25519},
    "no key": {KEY: REMOVE},
    "empty": {KEY: ""},
    "a word": {KEY: "key"},
    "options": {KEY: f'no-pty,command="ls" {ED25519} me'},
    "comment first": {KEY: f"# mine\n{ED25519} me"},
    "two keys": {KEY: f"{ED25519} a\n{ED25519} b"},
    "trailing newline": {KEY: f"{ED25519} me\n"},
    "leading space": {KEY: f"  {ED25519} me"},
    "other type": {KEY: ED25519.replace("ssh-ed25519", "ssh-rsa", 1)},
    "unknown type": {KEY: ED25519.replace("ssh-ed25519", "ssh-unknown", 1)},
    "not base64": {KEY: "ssh-ed25519 %%%% me"},
    "cut short": {KEY: ED25519[:-8]},
    "private": {KEY: "-----BEGIN OPENSSH PRIVATE KEY-----\nabc\n-----END OPENSSH PRIVATE KEY-----"},
    "no spec": {"spec": REMOVE},
    "fingerprint given": {"spec.fingerPrint": "aa:bb"},
    "name with capitals": {"metadata.name": "Key"},
    "generated name": {"metadata.name": REMOVE, "metadata.generateName": "key-"},
}
KEY_CHANGES: Mapping[str, Edits] = {
    "nothing": {},
    "label": {"L/a": "b"},
    "key": {KEY: ED25519 + " other"},
    "key a word": {KEY: "a"},
}

VLAN = "network.harvesterhci.io/vlan-id"
ROUTE = "A/network.harvesterhci.io/route"


def _config(raw: Raw, remove: str = "", **fields: Any) -> str:
    config = {**loads(raw["spec"]["config"].encode()), **fields}
    config.pop(remove, None)
    return dumps(config).decode()


def _new_networks() -> dict[str, Raw]:
    base = a_network("new", 80)
    trunk = [{"minID": 10, "maxID": 20}]

    def with_config(remove: str = "", more: Edits | None = None, **fields: Any) -> Raw:
        return edited(base, {"spec.config": _config(base, remove, **fields), **(more or {})})

    return {
        "as it is": base,
        "no config": edited(base, {"spec.config": REMOVE}),
        "empty config": edited(base, {"spec.config": ""}),
        "config not JSON": edited(base, {"spec.config": "{"}),
        "config a list": edited(base, {"spec.config": "[]"}),
        "no spec": edited(base, {"spec": REMOVE}),
        "vlan 0": with_config(vlan=0),
        "vlan 1": with_config(vlan=1),
        "vlan 4094": with_config(vlan=4094),
        "vlan 4095": with_config(vlan=4095),
        "vlan negative": with_config(vlan=-1),
        "vlan a text": with_config(vlan="80"),
        "vlan a fraction": with_config(vlan=8.5),
        "no vlan": with_config("vlan"),
        "no bridge": with_config("bridge"),
        "bridge without ending": with_config(bridge="mgmt"),
        "bridge of another": with_config(bridge="other-br"),
        "bridge of another, label too": with_config(bridge="other-br", more={"L/network.harvesterhci.io/clusternetwork": "other"}),
        "bridge name of 16": with_config(bridge="abcdefghijklm-br"),
        "no label": edited(base, {"L/network.harvesterhci.io/clusternetwork": REMOVE}),
        "no type label": edited(base, {"L/network.harvesterhci.io/type": REMOVE}),
        "type label unknown": edited(base, {"L/network.harvesterhci.io/type": "Carrier"}),
        "label of another vlan": edited(base, {f"L/{VLAN}": "81"}),
        "label of an unknown cluster network": edited(base, {"L/network.harvesterhci.io/clusternetwork": "other"}),
        "no labels": edited(base, {"metadata.labels": REMOVE}),
        "other type": with_config(type="macvlan"),
        "no type": with_config("type"),
        "type kube-ovn": with_config(type="kube-ovn", provider="new.default.ovn", server_socket="/run/openvswitch/kube-ovn-daemon.sock"),
        "no promiscuous mode": with_config("promiscMode"),
        "other name": with_config(name="other"),
        "no name": with_config("name"),
        "trunk": with_config("vlan", vlanTrunk=trunk, more={"L/network.harvesterhci.io/type": "L2VlanTrunkNetwork"}),
        "trunk and vlan": with_config(vlanTrunk=trunk),
        "trunk reversed": with_config("vlan", vlanTrunk=[{"minID": 20, "maxID": 10}]),
        "trunk beyond": with_config("vlan", vlanTrunk=[{"minID": 20, "maxID": 4095}]),
        "trunk of one": with_config("vlan", vlanTrunk=[{"id": 20}]),
        "trunk empty": with_config("vlan", vlanTrunk=[]),
        "mtu": with_config(mtu=9000),
        "mtu tiny": with_config(mtu=10),
        "mtu huge": with_config(mtu=90000),
        "ipam": with_config(ipam={"type": "host-local", "subnet": "10.0.0.0/24"}),
        "route automatic": edited(base, {ROUTE: '{"mode":"auto","serverIPAddr":"","cidr":"","gateway":""}'}),
        "route manual": edited(base, {ROUTE: '{"mode":"manual","serverIPAddr":"","cidr":"10.0.0.0/24","gateway":"10.0.0.1"}'}),
        "route of a bad mode": edited(base, {ROUTE: '{"mode":"guess"}'}),
        "route of a bad range": edited(base, {ROUTE: '{"mode":"manual","cidr":"10.0.0","gateway":"10.0.0.1"}'}),
        "route of a bad gateway": edited(base, {ROUTE: '{"mode":"manual","cidr":"10.0.0.0/24","gateway":"there"}'}),
        "route with a gateway outside": edited(base, {ROUTE: '{"mode":"manual","cidr":"10.0.0.0/24","gateway":"10.0.1.1"}'}),
        "route not JSON": edited(base, {ROUTE: "{"}),
        "unknown namespace": edited(base, {"metadata.namespace": "nowhere"}),
        "name with capitals": edited(base, {"metadata.name": "Net"}),
        **{f"config: {key} is {value!r}": with_config(**{key: value}) for key, value in MISTYPED.items()},
        "config null": edited(base, {"spec.config": "null"}),
        "route a list": edited(base, {ROUTE: "[]"}),
        "route of a mistyped mode": edited(base, {ROUTE: '{"mode":1}'}),
    }  # fmt: skip


# Of the configuration, parts of which are CNI's type.
MISTYPED = {
    "name": 7, "cniVersion": [], "capabilities": {"a": "b"}, "ipam": "dhcp", "dns": {"nameservers": "1.1.1.1"},
    "prevResult": 1, "bridge": 1, "mtu": "1500", "promiscMode": "true", "vlanTrunk": "10-20", "provider": {},
}  # fmt: skip


def _network_changes(old: Raw) -> dict[str, Raw]:
    return {
        "nothing": old,
        "label": edited(old, {"L/a": "b"}),
        "vlan": edited(old, {"spec.config": _config(old, vlan=90)}),
        "bridge": edited(old, {"spec.config": _config(old, bridge="other-br")}),
        "mtu": edited(old, {"spec.config": _config(old, mtu=9000)}),
        "config empty": edited(old, {"spec.config": ""}),
        "type label": edited(old, {"L/network.harvesterhci.io/type": "UntaggedNetwork"}),
        "cluster network label": edited(old, {"L/network.harvesterhci.io/clusternetwork": "other"}),
        "labels removed": edited(old, {"metadata.labels": REMOVE}),
        "route": edited(old, {ROUTE: '{"mode":"auto"}'}),
        "route manual": edited(old, {ROUTE: '{"mode":"manual","cidr":"10.0.0.0/24","gateway":"10.0.0.1"}'}),
        "route manual, connected": edited(
            old,
            {ROUTE: '{"mode":"manual","cidr":"10.0.0.0/24","gateway":"10.0.0.1","connectivity":"true","outdated":true,"a":1}'},
        ),
        "route removed": edited(old, {ROUTE: REMOVE}),
        "route not JSON": edited(old, {ROUTE: "{"}),
        "route mistyped": edited(old, {ROUTE: '{"cidr":"a","outdated":"b"}'}),
        "vlan and route": edited(old, {"spec.config": _config(old, vlan=91), ROUTE: '{"mode":"auto"}'}),
        "vlan and route not JSON": edited(old, {"spec.config": _config(old, vlan=91), ROUTE: "{"}),
        "vlan 0": edited(old, {"spec.config": _config(old, vlan=0)}),
        "vlan negative": edited(old, {"spec.config": _config(old, vlan=-1)}),
        "trunk": edited(old, {"spec.config": _config(old, "vlan", vlanTrunk=[{"minID": 10, "maxID": 20}])}),
        "type": edited(old, {"spec.config": _config(old, type="macvlan")}),
        "type kube-ovn": edited(old, {"spec.config": _config(old, type="kube-ovn")}),
        "field of others": edited(old, {"spec.config": _config(old, others=1)}),
        "mtu 0": edited(old, {"spec.config": _config(old, mtu=0)}),
        "config not JSON": edited(old, {"spec.config": "{"}),
    }  # fmt: skip


NEW_QUOTAS: Mapping[str, Edits] = {
    "as it is": {},
    "negative": {"spec.hard": {"cpu": "-1"}},
    "a word": {"spec.hard": {"cpu": "many"}},
    "a fraction of a count": {"spec.hard": {"pods": "1.5"}},
    "unknown name": {"spec.hard": {"nonsense": "1"}},
    "scopes": {"spec.scopes": ["BestEffort"], "spec.hard": {"pods": "1"}},
    "scope unknown": {"spec.scopes": ["Lucky"]},
    "scopes that exclude one another": {"spec.scopes": ["BestEffort", "NotBestEffort"]},
    "status": {"status": {"used": {"cpu": "1"}}},
    "no spec": {"spec": REMOVE},
    "storage of a class": {"spec.hard": {"fast.storageclass.storage.k8s.io/requests.storage": "1Gi"}},
}
NEW_SNAPSHOT_QUOTAS: Mapping[str, Edits] = {
    "as it is": {},
    "other name": {"metadata.name": "mine"},
    "negative": {"spec.snapshotLimit.namespaceTotalSnapshotSizeQuota": -1},
    "of a machine, negative": {"spec.snapshotLimit.vmTotalSnapshotSizeQuota": {"running": -1}},
    "machine above the namespace": {
        "spec.snapshotLimit": {
            "namespaceTotalSnapshotSizeQuota": 10,
            "vmTotalSnapshotSizeQuota": {"running": 20},
        }
    },
    "a word": {"spec.snapshotLimit.namespaceTotalSnapshotSizeQuota": "much"},
    "no spec": {"spec": REMOVE},
}
RESOURCE_QUOTA = "A/field.cattle.io/resourceQuota"
NEW_NAMESPACES: Mapping[str, Edits] = {
    "as it is": {},
    "name with dots": {"metadata.name": "a.b"},
    "name of 64": {"metadata.name": "n" * 64},
    "generated name": {"metadata.name": REMOVE, "metadata.generateName": "ns-"},
    "label bad": {"L/a": "b c"},
    "namespaced": {"metadata.namespace": "default"},
    "finalizers": {"spec": {"finalizers": ["kubernetes"]}},
    "quota annotation": {RESOURCE_QUOTA: '{"limit":{"limitsCpu":"100m"}}'},
    "quota annotation not JSON": {RESOURCE_QUOTA: "{"},
}
NAMESPACE_CHANGES: Mapping[str, Edits] = {
    "nothing": {},
    "label": {"L/a": "b"},
    "label bad": {"L/a": "b c"},
    "quota annotation": {RESOURCE_QUOTA: '{"limit":{"limitsCpu":"100m"}}'},
    "quota annotation of memory": {RESOURCE_QUOTA: '{"limit":{"limitsMemory":"1Mi"}}'},
    "quota annotation not JSON": {RESOURCE_QUOTA: "{"},
    "quota annotation empty": {RESOURCE_QUOTA: ""},
}
NEW_TEMPLATE_VERSIONS: Mapping[str, Edits] = {
    "as it is": {},
    "generated name": {"metadata.name": REMOVE, "metadata.generateName": "web-"},
    "no template": {"spec.templateId": REMOVE},
    "template missing": {"spec.templateId": "default/gone"},
    "template without namespace": {"spec.templateId": "web"},
    "key pair": {"spec.keyPairIds": ["default/key"]},
    "key pair missing": {"spec.keyPairIds": ["default/gone"]},
    "key pair without namespace": {"spec.keyPairIds": ["key"]},
    "image": {"spec.imageId": "default/jammy"},
    "image missing": {"spec.imageId": "default/gone"},
    "claims of an unknown class": {
        "spec.vm.metadata.annotations": {
            "harvesterhci.io/volumeClaimTemplates": '[{"metadata":{"name":"a"},"spec":{"storageClassName":"missing"}}]'}
    },
    "claims not JSON": {"spec.vm.metadata.annotations": {"harvesterhci.io/volumeClaimTemplates": "["}},
    "no VM": {"spec.vm": REMOVE},
    "VM without template": {"spec.vm.spec.template": REMOVE},
    "unknown field": {"spec.nonsense": 1},
    "unknown field of the VM": {"spec.vm.nonsense": 1},
    "unknown field of the VM's spec": {"spec.vm.spec.nonsense": 1},
    "unknown field of a device": {"spec.vm.spec.template.spec.domain.devices.nonsense": {"a": 1}},
    "unknown metadata of the VM": {"spec.vm.metadata.nonsense": 1},
    "no spec": {"spec": REMOVE},
}  # fmt: skip
TEMPLATE_VERSION_CHANGES: Mapping[str, Edits] = {
    "nothing": {},
    "label": {"L/a": "b"},
    "spec": {"spec.description": "b"},
    "description": {"A/field.cattle.io/description": "b"},
}
NEW_MIGRATIONS: Mapping[str, Edits] = {
    "as it is": {},
    "no name of an instance": {"spec.vmiName": REMOVE},
    "empty name of an instance": {"spec.vmiName": ""},
    "instance missing": {"spec.vmiName": "gone"},
    "instance stopped": {"spec.vmiName": "stopped"},
    "generated name": {"metadata.name": REMOVE, "metadata.generateName": "m-"},
    "name of 64": {"metadata.name": "m" * 64},
    "node selector": {"spec.addedNodeSelector": {"a": "b"}},
    "label bad": {"L/a": "b c"},
    "no spec": {"spec": REMOVE},
}


_TTL = "kubeconfig-default-token-ttl-minutes"
SETTING_VALUES: Mapping[str, tuple[str, ...]] = {
    "overcommit-config": (
        "", '{"cpu":200,"memory":150,"storage":100}', '{"cpu":99,"memory":150,"storage":100}', '{"cpu":200,"memory":9}',
        '{"cpu":200,"memory":200,"storage":-1}', '{"cpu":"200"}', "{", "[]", "null", '{"cpu":1.5}',
    ),
    "additional-guest-memory-overhead-ratio": ("", "0", "0.0", "1", "1.5", "0.9", "-1", "10", "10.1", "much", "1e3"),
    "max-hotplug-ratio": ("", "1", "4", "20", "0", "21", "-1", "1.5", "many", "4294967296", "04"),
    "default-vm-termination-grace-period-seconds": ("", "0", "60", "-1", "-0", "007", "+5", "x", "1.5", "9223372036854775808"),
    "support-bundle-timeout": ("", "0", "20", "-1", "010", "x"),
    _TTL: ("", "0", "60", "-1", "52560000", "52560001", "x"),
    "support-bundle-expiration": ("", "0", "20", "-1", "x"),
    "support-bundle-node-collection-timeout": ("", "0", "20", "-1", "x"),
    "support-bundle-file-name": ("", "bundle", "Bundle", "a.b", "-a", "a" * 64, "A" * 64, " "),
    "auto-rotate-rke2-certs": (
        "", '{"enable":true,"expiringInHours":240}', '{"enable":true}', "{}", '{"expiringInHours":-1}', '{"expiringInHours":8759}',
        '{"expiringInHours":8760}', '{"expiringInHours":"1"}', '{"enable":"true","expiringInHours":1}', "[]", "{", "null",
    ),
    "ssl-parameters": (
        "", "{}", '{"protocols":"TLSv1.2 TLSv1.3","ciphers":"A"}', '{"protocols":"TLSv1.2  SSLv2 "}', '{"protocols":"TLSv9"}',
        '{"protocols":1}', '{"ciphers":"A"}', '{"protocols":" "}', "[]", "{",
    ),
    "ntp-servers": (
        "", "{}", '{"ntpServers":[]}', '{"ntpServers":null}', '{"ntpServers":["0.pool.ntp.org","10.0.0.1","::1"]}', '{"ntpServers":[""]}',
        '{"ntpServers":["http://a"]}', '{"ntpServers":["a b"]}', '{"ntpServers":["a","b","a"]}', '{"ntpServers":["a."]}',
        '{"ntpServers":["a..b"]}', '{"ntpServers":["*.a"]}', '{"ntpServers":["fe80::1%eth0"]}', '{"ntpServers":[1]}', '{"ntpServers":"a"}', "{",
    ),
    "kubevirt-migration": (
        "", "{}", '{"parallelMigrationsPerCluster":3}', '{"parallelMigrationsPerCluster":-3}', '{"parallelMigrationsPerCluster":"3"}',
        '{"bandwidthPerMigration":"64Mi"}', '{"bandwidthPerMigration":"much"}', '{"network":"default/vlan50"}', '{"network":""}',
        '{"nodeDrainTaintKey":"a"}', '{"allowPostCopy":"yes"}', '{"progressTimeout":1.5}', '{"nonsense":1}', "[]", "{", "null",
    ),
    "vm-force-reset-policy": (
        '{"enable":1,"period":1}', '{"period":"1"}', "null", "[]",
        "", '{"enable":true,"period":15}', '{"enable":true,"period":0}', '{"enable":true}', '{"period":1,"vmMigrationTimeout":-1}', "{", "x",
    ),
}  # fmt: skip


def setting_questions(world: ClusterDump) -> Iterator[Question]:
    for name, values in SETTING_VALUES.items():
        old = world.get(kinds.SETTING, name)
        for value in values:
            changed = edited(old, {"value": value})
            yield Question(f"update {name}: {value or 'empty'}", "setting", kinds.SETTING, changed, old)
    for name in ("cluster-pod-security-standard", "max-hotplug-ratio"):
        yield Question(f"delete {name}", "setting", kinds.SETTING, None, world.get(kinds.SETTING, name))


def questions(world: ClusterDump) -> Iterator[Question]:
    hard = {"limits.cpu": "4", "limits.memory": "8Gi"}
    template = {"templateId": "default/web", "vm": template_vm()}
    limit = {"snapshotLimit": {"namespaceTotalSnapshotSizeQuota": 100}}
    for group, kind, base, table in (
        (
            "key pair",
            kinds.KEY_PAIR,
            an_object(kinds.KEY_PAIR, "new", {"publicKey": f"{ED25519} me"}),
            NEW_KEYS,
        ),
        ("quota", kinds.QUOTA, an_object(kinds.QUOTA, "new", {"hard": hard}), NEW_QUOTAS),
        (
            "snapshot quota",
            kinds.SNAPSHOT_QUOTA,
            an_object(kinds.SNAPSHOT_QUOTA, "default-resource-quota", limit),
            NEW_SNAPSHOT_QUOTAS,
        ),
        ("namespace", resources.NAMESPACE, an_object(resources.NAMESPACE, "new", {}), NEW_NAMESPACES),
        (
            "template version",
            kinds.TEMPLATE_VERSION,
            an_object(kinds.TEMPLATE_VERSION, "new", template),
            NEW_TEMPLATE_VERSIONS,
        ),
        (
            "migration",
            kinds.MIGRATION,
            an_object(kinds.MIGRATION, "new", {"vmiName": "running"}),
            NEW_MIGRATIONS,
        ),
    ):
        for case, edits in table.items():
            yield Question(f"create: {case}", group, kind, edited(base, edits))
    for group, kind, name, namespace, changes in (
        ("key pair", kinds.KEY_PAIR, "key", "default", KEY_CHANGES),
        ("namespace", resources.NAMESPACE, "default", "", NAMESPACE_CHANGES),
        ("namespace", resources.NAMESPACE, "tenant", "", NAMESPACE_CHANGES),
        ("template version", kinds.TEMPLATE_VERSION, "web-1", "default", TEMPLATE_VERSION_CHANGES),
        (
            "quota",
            kinds.QUOTA,
            "default-quota",
            "tenant",
            {"nothing": {}, "less": {"spec.hard": {"pods": "1"}}},
        ),
    ):
        old = world.get(kind, name, namespace)
        for case, edits in changes.items():
            yield Question(f"update {name}: {case}", group, kind, edited(old, edits), old)
        yield Question(f"delete {name}", group, kind, None, old)


def counted_questions(world: ClusterDump) -> Iterator[Question]:
    """In a namespace whose quota counts objects."""
    place = {"metadata.namespace": "limited"}
    pair = an_object(kinds.KEY_PAIR, "new", {"publicKey": f"{ED25519} me"})
    for case, kind, raw in (
        ("a Secret", resources.SECRET, a_secret("new")),
        ("a Secret without a name", resources.SECRET, edited(a_secret("new"), {"metadata.name": REMOVE, "metadata.generateName": "a-"})),
        ("a key pair", kinds.KEY_PAIR, pair),
        ("a machine", kinds.VM, a_vm("new")),
        ("a claim", resources.PVC, a_volume("new")),
        ("an image", kinds.IMAGE, an_image("new")),
    ):  # fmt: skip
        yield Question(f"create: {case} where they are counted", "quota", kind, edited(raw, place))


def network_questions(world: ClusterDump) -> Iterator[Question]:
    for case, raw in _new_networks().items():
        yield Question(f"create: {case}", "network", kinds.NAD, raw)
    for name in ("vlan50", "idle", "untagged", "routed"):
        old = world.get(kinds.NAD, name)
        for case, raw in _network_changes(old).items():
            yield Question(f"update {name}: {case}", "network", kinds.NAD, raw, old)
        yield Question(f"delete {name}", "network", kinds.NAD, None, old)
