"""The user's configuration keys, merged as Rancher merges them, and the labels and taints of a node.

What is here is the same for every distribution; the keys of a role are the distribution's.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from windrow.bootstrap.spec import BootstrapSpec, InvalidBootstrapSpec, Role
from windrow.core.formats.bounds import abbreviate
from windrow.kubernetes.objects import is_label_key
from windrow.kubernetes.selectors import read_label_selector

CLOUD_PROVIDER_NAME = "cloud-provider-name"
CLOUD_PROVIDER_CONFIG = "cloud-provider-config"
HARVESTER = "harvester"

MACHINE_LABEL = "rke.cattle.io/machine"
OS_LABEL = "cattle.io/os"
WORKER_LABEL = "node-role.kubernetes.io/worker"

# Only nodes that carry no workload are tainted.
ROLE_TAINTS = {
    Role.ETCD: "node-role.kubernetes.io/etcd:NoExecute",
    Role.CONTROL_PLANE: "node-role.kubernetes.io/control-plane:NoSchedule",
}

# Labels under kubernetes.io and k8s.io that a kubelet may give itself; it refuses to start with any other.
_KUBELET_MAY = frozenset(
    {
        "kubernetes.io/hostname",
        "kubernetes.io/arch",
        "kubernetes.io/os",
        "beta.kubernetes.io/arch",
        "beta.kubernetes.io/os",
        "beta.kubernetes.io/instance-type",
        "node.kubernetes.io/instance-type",
        "topology.kubernetes.io/region",
        "topology.kubernetes.io/zone",
        "failure-domain.beta.kubernetes.io/region",
        "failure-domain.beta.kubernetes.io/zone",
    }
)
_KUBELET_MAY_UNDER = ("kubelet.kubernetes.io", "node.kubernetes.io")
_RESERVED = ("kubernetes.io", "k8s.io")


def merge_config(spec: BootstrapSpec) -> dict[str, Any]:
    """`machineGlobalConfig`, then each `machineSelectorConfig` whose selector fits the machine, in order.

    A later value replaces an earlier one whole; lists are not joined. An entry without selector fits every machine.
    """
    merged = dict(spec.global_config)
    for entry in spec.selector_config:
        if read_label_selector(entry.get("machineLabelSelector")).matches(spec.machine_labels):
            merged |= entry.get("config") or {}
    return merged


def uses_harvester(config: Mapping[str, Any]) -> bool:
    """Whether the cluster runs Harvester's cloud provider and storage."""
    return config.get(CLOUD_PROVIDER_NAME) == HARVESTER


def list_disabled(config: Mapping[str, Any]) -> list[str]:
    """The components that the user's `disable` names, in a list or with commas."""
    items = (str(item).split(",") for item in list_of(config.get("disable")))
    return [name.strip() for parts in items for name in parts if name.strip()]


def credential_text(spec: BootstrapSpec, user: Mapping[str, Any], path: str, *, harvester: bool) -> str:
    """The content of the credential file at `path`; "" where the user names another that is already on the machine, or
    nothing.

    `secret://namespace:name` stands for the credential that the cluster controller delivers; with Harvester's provider
    it is delivered unasked. Other text is the content itself. Raises InvalidBootstrapSpec.
    """
    given = str(user.get(CLOUD_PROVIDER_CONFIG) or "")
    if given == path:
        given = ""  # as in the configuration of a cluster made by hand
    if given.startswith("/"):
        return ""
    if given and not given.startswith("secret://"):
        return given
    if spec.guest_credential and (given or harvester):
        return spec.guest_credential.kubeconfig
    if given:
        raise InvalidBootstrapSpec(
            f"{given} was not read", "create the Secret it names, or remove cloud-provider-config"
        )
    return ""


# Keys whose lists Windrow extends, with what an entry looks like.
EXTENDED = {
    "node-label": "tier=db",
    "node-taint": "dedicated=db:NoSchedule",
    "tls-san": "api.example.org",
    "kubelet-arg": "max-pods=250",
    "disable": "traefik",
}


def list_malformed(user: Mapping[str, Any], extended: Iterable[str]) -> Iterator[InvalidBootstrapSpec]:
    """The keys of `extended` that the user gives another form than a list of texts."""
    for key in extended:
        if any(isinstance(item, Mapping | list) for item in list_of(user.get(key))):
            yield InvalidBootstrapSpec(
                f"{key} has a map or a list as an entry, and takes texts", f"write {key}: [{EXTENDED[key]}]"
            )


_TAINT = re.compile(r"(?P<key>[^=:]+)(=[^=:]*)?:(NoSchedule|PreferNoSchedule|NoExecute)")


def list_node_contradictions(user: Mapping[str, Any]) -> Iterator[InvalidBootstrapSpec]:
    """Labels and taints in the user's keys with which no kubelet starts."""
    for label in _texts_of(user, "node-label"):
        if not kubelet_may_set(label.partition("=")[0]):
            yield InvalidBootstrapSpec(
                f"node-label has {abbreviate(label)}, and no kubelet starts with it: it may not set labels of kubernetes.io",
                "write it as one of the labels of the machine pool",
            )
    for taint in _texts_of(user, "node-taint"):
        found = _TAINT.fullmatch(taint)
        if found is None or not is_label_key(found["key"]):
            yield InvalidBootstrapSpec(
                f"node-taint has {abbreviate(taint)}, and no kubelet starts with it",
                f"write KEY=VALUE:EFFECT, as in {EXTENDED['node-taint']}",
            )


def _texts_of(user: Mapping[str, Any], key: str) -> list[str]:
    """The values of a repeatable flag, each of which may be several with commas."""
    texts = [one for one in list_of(user.get(key)) if isinstance(one, str)]
    return [part.strip() for one in texts for part in one.split(",") if part.strip()]


def list_of(value: Any) -> list[Any]:
    """`value` as the list that a repeatable flag takes: YAML may hold nothing, one value, or several."""
    if value in (None, "", {}):
        return []
    return list(value) if isinstance(value, list | tuple) else [value]


def union(*parts: Iterable[Any]) -> list[Any]:
    """All values of `parts`, each once, first come first."""
    return list(dict.fromkeys(value for part in parts for value in part))


def kubelet_labels(spec: BootstrapSpec) -> list[str]:
    """`key=value` for each label that the node gives itself."""
    own = {MACHINE_LABEL: spec.machine_uid, OS_LABEL: "linux"}
    allowed = {key: value for key, value in spec.labels.items() if kubelet_may_set(key)}
    return [f"{key}={value}" for key, value in (allowed | own).items()]


def manager_labels(labels: Mapping[str, str], roles: frozenset[Role]) -> dict[str, str]:
    """Those of a pool's labels that a kubelet must not give itself; the manager sets them once the Node is there."""
    restricted = {key: value for key, value in labels.items() if not kubelet_may_set(key)}
    return restricted | ({WORKER_LABEL: "true"} if Role.WORKER in roles else {})


def kubelet_may_set(label: str) -> bool:
    """Whether a kubelet may put `label` on its own node (the NodeRestriction rule)."""
    domain, slash, _ = label.rpartition("/")
    if not slash or not _is_under(domain, _RESERVED):
        return True
    return label in _KUBELET_MAY or _is_under(domain, _KUBELET_MAY_UNDER)


def node_taints(spec: BootstrapSpec) -> list[str]:
    """The pool's taints, and those of roles where the node is no worker."""
    by_role = [] if spec.is_worker else [taint for role, taint in ROLE_TAINTS.items() if role in spec.roles]
    return union(spec.taints, by_role)


def identity_keys(spec: BootstrapSpec, config: Mapping[str, Any], taints: Iterable[str]) -> dict[str, Any]:
    """Keys of the node's identity, with `taints` of it. The user's lists in `config` are kept and extended."""
    identity: dict[str, Any] = {"node-name": spec.hostname}
    identity["node-label"] = union(list_of(config.get("node-label")), kubelet_labels(spec))
    if all_taints := union(list_of(config.get("node-taint")), taints):
        identity["node-taint"] = all_taints
    if spec.node_ip:
        identity["node-ip"] = spec.node_ip
    if spec.data_directory:
        identity["data-dir"] = spec.data_directory
    return identity


def _is_under(domain: str, parents: tuple[str, ...]) -> bool:
    return any(domain == parent or domain.endswith(f".{parent}") for parent in parents)
