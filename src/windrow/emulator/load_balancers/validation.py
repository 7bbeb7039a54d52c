"""Mutation and validation of LoadBalancers as in Harvester's webhook (reference 02 §4.6)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from windrow.emulator import names as cluster_names
from windrow.emulator.load_balancers import names
from windrow.emulator.release import Release
from windrow.kubernetes.objects import Raw, annotations_of, labels_of, name_of, namespace_of, nested

MAX_PORT = 65535
# What a health check that leaves a number out gets.
HEALTH_DEFAULTS = {"successThreshold": 2, "failureThreshold": 2, "periodSeconds": 1, "timeoutSeconds": 1}


def is_for_cluster(balancer: Mapping[str, Any]) -> bool:
    return bool(nested(balancer, "spec", "workloadType") == "cluster")


def needs_project(balancer: Mapping[str, Any], release: Release) -> bool:
    """Whether project and network are annotated; before 1.9 also without a workload type, with an empty network."""
    if release.respects_network_annotation:
        return is_for_cluster(balancer)
    return bool(nested(balancer, "spec", "workloadType") != "vm")


def mutate_balancer(balancer: Raw, namespace: Raw, instances: Iterable[Raw], release: Release) -> None:
    """Set the annotations for pool selection and the health check's defaults. May be repeated."""
    annotations = balancer["metadata"].get("annotations") or {}
    balancer["metadata"]["annotations"] = annotations
    annotations[names.NAMESPACE] = namespace_of(balancer)
    if needs_project(balancer, release):
        project = annotations_of(namespace).get(names.PROJECT_OF_NAMESPACE, "")
        annotations[names.PROJECT] = project.replace(":", "/", 1)
        annotations[names.NETWORK] = _network(balancer, list(instances), release)
    check = nested(balancer, "spec", "healthCheck")
    if check and check.get("port"):
        check.update({key: value for key, value in HEALTH_DEFAULTS.items() if not check.get(key)})


def _network(balancer: Raw, instances: list[Raw], release: Release) -> str:
    """The VM network of the guest cluster's machines."""
    annotations = annotations_of(balancer)
    cluster = annotations.get(names.CLUSTER, "")
    own = [one for one in instances if namespace_of(one) == namespace_of(balancer)]
    made = [one for one in own if labels_of(one).get(cluster_names.CREATOR) == cluster_names.NODE_DRIVER]
    named = [one for one in made if name_of(one).startswith(cluster)]
    if not release.respects_network_annotation:
        # Matched by prefix only: clusters `a` and `ab` are confused, as shipped.
        return _first_network(named) if cluster and is_for_cluster(balancer) else ""
    requested = annotations.get(names.NETWORK) or annotations.get(names.MANAGEMENT_NETWORK)
    if requested:
        return requested
    if not cluster:
        return ""
    members = [one for one in own if labels_of(one).get(names.MACHINE_CLUSTER) == cluster]
    return _first_network(members) or _first_network(named)


def _first_network(instances: Iterable[Raw]) -> str:
    for instance in instances:
        for network in nested(instance, "spec", "networks", default=[]):
            if found := nested(network, "multus", "networkName", default=""):
                return str(found)
    return ""


# --- refusals -----------------------------------------------------------------------------------------------------


def find_create_problem(balancer: Raw, machines: Iterable[Raw], release: Release) -> str:
    """Why the LoadBalancer cannot be created; "" when it can."""
    head = f"create loadbalancer {namespace_of(balancer)}/{name_of(balancer)} failed"
    if problem := _check_spec(balancer):
        return f"{head}{problem}"
    if release.deletes_with_guest_cluster and (problem := _check_guest_removal(balancer, machines)):
        return f"{head} with guest cluster check: {problem}"
    return ""


def find_update_problem(balancer: Raw, old: Raw) -> str:
    """Why `old` cannot become `balancer`; "" when it can."""
    head = f"update loadbalancer {namespace_of(balancer)}/{name_of(balancer)} failed"
    if problem := _check_spec(balancer):
        return f"{head}{problem}"
    for key, word, special in (("ipam", "IPAM", "dhcp"), ("workloadType", "WorkloadType", "cluster")):
        before, after = (nested(one, "spec", key, default="") for one in (old, balancer))
        if (before == special) != (after == special):
            return f"{head}: can't change the {word} from {before} to {after}"
    return ""


def _check_spec(balancer: Raw) -> str:
    if is_for_cluster(balancer):
        return ""
    if problem := _check_listeners(balancer):
        return f": {problem}"
    if problem := _check_health(balancer):
        return f" with healthyCheck: {problem}"
    return ""


def _check_listeners(balancer: Raw) -> str:
    listeners: list[Raw] = nested(balancer, "spec", "listeners", default=[])
    if not listeners:
        return "the loadbalancer needs to have at least one listener"
    known: set[str] = set()
    ports: dict[str, str] = {}
    backends: dict[str, str] = {}
    for one in listeners:
        name, protocol = one.get("name", ""), one.get("protocol", "")
        if name in known:
            return f"listener has duplicate name {name}"
        known.add(name)
        for key, word, seen in (("port", "port", ports), ("backendPort", "backend port", backends)):
            place = f"{protocol}:{one.get(key)}"
            if place in seen:
                return f"listener {name} has duplicate {word} {place} with listener {seen[place]}"
            seen[place] = name
    return next(filter(None, map(_check_numbers, listeners)), "")


def _check_numbers(listener: Raw) -> str:
    for key, word in (("port", "listener port"), ("backendPort", "listener backend port")):
        number = int(listener.get(key) or 0)
        if number > MAX_PORT:
            return f"{word} {number} must <= {MAX_PORT}"
        if number < 1:
            return f"{word} {number} must >= 1"
    return ""


def _check_health(balancer: Raw) -> str:
    check = nested(balancer, "spec", "healthCheck", default={})
    port = check.get("port")
    if not port:
        return ""
    listeners = nested(balancer, "spec", "listeners", default=[])
    protocols = [one.get("protocol") for one in listeners if one.get("backendPort") == port]
    if not protocols:
        return f"healthcheck port {port} is not in listener backend port list"
    if "TCP" not in protocols:
        return f"healthcheck port {port} can only be a TCP backend port"
    return ""


def _check_guest_removal(balancer: Raw, machines: Iterable[Raw]) -> str:
    """A guest cluster that is being removed gets no new LoadBalancers."""
    cluster = labels_of(balancer).get(names.BALANCER_CLUSTER, "")
    if not is_for_cluster(balancer) or cluster in ("", names.DEFAULT_CLUSTER):
        return ""
    for vm in machines:
        if namespace_of(vm) == namespace_of(balancer) and is_guest_of(vm, cluster) and is_being_removed(vm):
            return f"the vm {namespace_of(vm)}/{name_of(vm)} shows guest cluster {cluster} is being removed"
    return ""


def is_guest_of(vm: Raw, cluster: str) -> bool:
    """Whether the node driver made the VM for this guest cluster."""
    labels = labels_of(vm)
    made = labels.get(cluster_names.CREATOR) == cluster_names.NODE_DRIVER
    return made and labels.get(names.MACHINE_CLUSTER) == cluster


def is_being_removed(vm: Raw) -> bool:
    """Whether the VM is annotated for removal with all its PVCs, as a deleted guest cluster's VMs are."""
    return annotations_of(vm).get(cluster_names.REMOVE_ALL_CLAIMS) == "true"
