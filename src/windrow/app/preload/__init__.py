"""The objects that an emulated Harvester must have so that given manifests can come up.

A manifest names images, networks, storage classes, key pairs, namespaces and credentials of the user's Harvester.
`read_preload` collects those references and nothing else; `describe_preload` lists what is created, since none of it is
the user's own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from typing import Any

from windrow.bootstrap.node_config import CLOUD_PROVIDER_CONFIG
from windrow.clusters.api.endpoint import read_asked_endpoint
from windrow.clusters.api.fields import ProblemCollector
from windrow.clusters.api.kinds import CLUSTER
from windrow.clusters.api.manifest.machine_config import read_options
from windrow.clusters.api.names import CREDENTIAL_KEY
from windrow.clusters.api.references import (
    list_grants,
    parse_secret_reference,
    qualify_credential,
    render_allowed_namespaces,
)
from windrow.harvester.resources import IP_POOL, NETWORK
from windrow.kubernetes.kubeconfig import BadKubeconfig, parse_kubeconfig
from windrow.kubernetes.objects import (
    Raw,
    annotations_of,
    is_dns_subdomain,
    mappings_at,
    name_of,
    namespace_of,
    nested,
    new_object,
)
from windrow.kubernetes.resources import NAMESPACE, SECRET, ApiResource, ObjectRef
from windrow.nodedriver.config import read_fields
from windrow.nodedriver.validate.references import all_references

_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
# What a host must have for a machine: no API objects, and listed beside those that are created.
HOST_DEVICE = ApiResource("", "", "HostDevice", "hostdevices", namespaced=False)
CPU_MODEL = ApiResource("", "", "CPUModel", "cpumodels", namespaced=False)
# A network whose router advertises a prefix of IPv6, which no API object of Harvester says.
IPV6_NETWORK = ApiResource("", "", "IPv6Network", "ipv6networks")
# Credentials are Secrets of the management API; all others are Harvester's.
Preload = frozenset[ObjectRef]


def read_preload(documents: Iterable[Mapping[str, Any]]) -> Preload:
    """References to everything that the Clusters and HarvesterConfigs in `documents` name."""
    refs: set[ObjectRef] = set()
    documents = tuple(documents)
    has_dual_stack = any(_is_dual_stack(document) for document in documents)
    for document in documents:
        match document.get("kind"):
            case "HarvesterConfig":
                found = set(_references_of_config(document))
                refs.update(found)
                if has_dual_stack and not document.get("addressPools"):
                    refs.update(
                        IPV6_NETWORK.ref(one.name, one.namespace) for one in found if one.kind == NETWORK
                    )
            case "Cluster":
                refs.update(_credentials_of_cluster(document))
                refs.update(_pool_of_endpoint(document))
    return frozenset(refs)


def _is_dual_stack(document: Mapping[str, Any]) -> bool:
    """Whether it is a Cluster whose pods have both families."""
    if document.get("kind") != "Cluster":
        return False
    networks = str(nested(document, "spec", "rkeConfig", "machineGlobalConfig", "cluster-cidr", default=""))
    return ":" in networks and "." in networks


def _references_of_config(config: Mapping[str, Any]) -> Iterator[ObjectRef]:
    configuration, _ = read_fields(read_options(config))  # the manager reports malformed fields
    yield NAMESPACE.ref(configuration.vm_namespace)
    # A host can have what is the name of a resource, and of a label; the manager refuses the rest.
    for device in configuration.vgpu_info or ():
        domain, _, name = device.device_name.partition("/")
        if is_dns_subdomain(domain) and _NAME.fullmatch(name):
            yield HOST_DEVICE.ref(device.device_name)
    if _NAME.fullmatch(configuration.cpu_model):
        yield CPU_MODEL.ref(configuration.cpu_model)
    for ref in all_references(configuration):
        yield ref
        if ref.namespace:
            yield NAMESPACE.ref(ref.namespace)


def _credentials_of_cluster(cluster: Mapping[str, Any]) -> Iterator[ObjectRef]:
    pools = mappings_at(cluster, "spec", "rkeConfig", "machinePools")
    for place in (nested(cluster, "spec"), *pools):
        name = str(nested(place, "cloudCredentialSecretName", default=""))
        ref = parse_secret_reference(qualify_credential(name, namespace_of(cluster)))
        if ref is not None:  # the manager reports what is none
            yield ref


def _pool_of_endpoint(cluster: Mapping[str, Any]) -> Iterator[ObjectRef]:
    pool = read_asked_endpoint(annotations_of(cluster), ProblemCollector()).pool
    if pool:
        yield IP_POOL.ref(pool)


def names_of(preload: Preload, kind: ApiResource) -> list[str]:
    """The names of this kind, `namespace/name` where it is namespaced."""
    return sorted(
        f"{ref.namespace}/{ref.name}" if ref.namespace else ref.name for ref in preload if ref.kind == kind
    )


def describe_preload(preload: Preload) -> list[str]:
    """One line for each kind: `KeyPair default/me, default/you`."""
    kinds = sorted({ref.kind for ref in preload}, key=lambda kind: kind.kind)
    return [f"{kind.kind} {', '.join(names_of(preload, kind))}" for kind in kinds]


def leave_out_kubeconfigs(documents: Iterable[Raw]) -> tuple[list[Raw], list[str]]:
    """The documents without the kubeconfigs that their Clusters bring for the cloud provider in the guest, and a line for each:
    they lead to the user's Harvester. The cluster manager makes one for the emulated Harvester where there is none."""
    kept = [deepcopy(raw) for raw in documents]
    brought = {
        f"secret://{namespace_of(raw)}:{name_of(raw)}" for raw in kept if raw.get("kind") == SECRET.kind
    }
    notes = []
    for raw in kept:
        if raw.get("kind") != CLUSTER.kind:
            continue
        selected = mappings_at(raw, "spec", "rkeConfig", "machineSelectorConfig")
        configs = [
            nested(raw, "spec", "rkeConfig", "machineGlobalConfig"),
            *(nested(one, "config") for one in selected),
        ]
        for config in configs:
            given = nested(config, CLOUD_PROVIDER_CONFIG)
            if isinstance(given, str) and (given in brought or _is_kubeconfig(given)):
                del config[CLOUD_PROVIDER_CONFIG]
                notes.append(
                    f"Cluster {namespace_of(raw)}/{name_of(raw)}: left out {CLOUD_PROVIDER_CONFIG}, a kubeconfig of "
                    "another Harvester than the emulated one"
                )
    return kept, notes


def _is_kubeconfig(text: str) -> bool:
    try:
        parse_kubeconfig(text)
    except BadKubeconfig:
        return False
    return True


def credential_secrets(documents: Sequence[Mapping[str, Any]], kubeconfig: str) -> list[Raw]:
    """The Secrets that the manifests' credentials name, in Rancher's form, each with `kubeconfig`.

    Each allows the namespaces of the Clusters that name it.
    """
    grants = list_grants(documents)
    content = {"harvestercredentialConfig-clusterType": "imported", CREDENTIAL_KEY: kubeconfig}
    return [
        new_object(
            SECRET,
            ref.name,
            ref.namespace,
            annotations=render_allowed_namespaces(grants.get(ref, ())),
            type="Opaque",
            stringData=dict(content),
        )
        for ref in sorted(read_preload(documents), key=str)
        if ref.kind == SECRET
    ]
