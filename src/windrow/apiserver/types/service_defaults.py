"""Service fields that follow from type and policies: defaults, and what an update drops or keeps."""

from __future__ import annotations

from typing import Any

Raw = dict[str, Any]

HEADLESS = "None"
EXTERNAL_NAME = "ExternalName"
LOAD_BALANCER = "LoadBalancer"
CLUSTER_IP = "ClusterIP"
NODE_PORT = "NodePort"
AFFINITY_SECONDS = 10800


def is_headless(spec: Raw) -> bool:
    return bool(spec.get("clusterIP") == HEADLESS or spec.get("clusterIPs") == [HEADLESS])


def has_addresses(spec: Raw) -> bool:
    """Whether the type has cluster IPs; `None` counts as one."""
    return spec.get("type") != EXTERNAL_NAME


def may_have_node_ports(spec: Raw) -> bool:
    return spec.get("type") in (NODE_PORT, LOAD_BALANCER)


def gets_node_ports(spec: Raw) -> bool:
    """Whether node ports are allocated."""
    if spec.get("type") == LOAD_BALANCER:
        return spec.get("allocateLoadBalancerNodePorts") is not False
    return bool(spec.get("type") == NODE_PORT)


def is_external(spec: Raw) -> bool:
    """Whether the Service is externally accessible."""
    return may_have_node_ports(spec) or bool(spec.get("type") == CLUSTER_IP and spec.get("externalIPs"))


def needs_health_port(spec: Raw) -> bool:
    return bool(spec.get("type") == LOAD_BALANCER and spec.get("externalTrafficPolicy") == "Local")


def node_ports_of(spec: Raw) -> list[int]:
    return [one["nodePort"] for one in spec.get("ports") or () if one.get("nodePort")]


def apply_defaults(spec: Raw) -> None:
    """Set defaults, in place. May be repeated."""
    if spec.get("sessionAffinity") == "ClientIP":
        if not ((spec.get("sessionAffinityConfig") or {}).get("clientIP") or {}).get("timeoutSeconds"):
            spec["sessionAffinityConfig"] = {"clientIP": {"timeoutSeconds": AFFINITY_SECONDS}}
    else:
        spec.pop("sessionAffinityConfig", None)
    for port in spec.get("ports") or ():
        if port.get("targetPort") in (None, 0, ""):
            port["targetPort"] = port.get("port")
    if is_external(spec):
        spec.setdefault("externalTrafficPolicy", "Cluster")
    if spec.get("type") != EXTERNAL_NAME:
        spec.setdefault("internalTrafficPolicy", "Cluster")
    if spec.get("type") == LOAD_BALANCER:
        spec.setdefault("allocateLoadBalancerNodePorts", True)


def drop_type_dependent_fields(spec: Raw, old: Raw) -> None:
    """An update of type drops the fields that only the old type had, unless the update changes them."""
    if has_addresses(old) and not has_addresses(spec):
        if _same(spec, old, "clusterIP", "clusterIPs"):
            _drop(spec, "clusterIP", "clusterIPs")
        for field in ("ipFamilies", "ipFamilyPolicy"):
            if _same(spec, old, field):
                _drop(spec, field)
    closes = may_have_node_ports(old) and not may_have_node_ports(spec)
    if closes and set(node_ports_of(spec)) <= set(node_ports_of(old)):
        for port in spec.get("ports") or ():
            port.pop("nodePort", None)
    if needs_health_port(old) and not needs_health_port(spec) and _same(spec, old, "healthCheckNodePort"):
        _drop(spec, "healthCheckNodePort")
    if old.get("type") == LOAD_BALANCER and spec.get("type") != LOAD_BALANCER:
        for field in ("allocateLoadBalancerNodePorts", "loadBalancerClass"):
            if _same(spec, old, field):
                _drop(spec, field)
    if is_external(old) and not is_external(spec) and _same(spec, old, "externalTrafficPolicy"):
        _drop(spec, "externalTrafficPolicy")


def patch_allocated_values(spec: Raw, old: Raw) -> None:
    """An update without clusterIPs, node ports or health check port keeps those that the server allocated."""
    if has_addresses(old) and has_addresses(spec):
        if spec.get("clusterIP") and spec["clusterIP"] != old.get("clusterIP"):
            if spec.get("clusterIPs") in (None, [], old.get("clusterIPs")):
                spec["clusterIPs"] = [spec["clusterIP"]]
        elif old.get("clusterIP"):
            spec["clusterIP"] = old["clusterIP"]
        if not spec.get("clusterIPs") and old.get("clusterIPs"):
            spec["clusterIPs"] = list(old["clusterIPs"])
        if not spec.get("ipFamilyPolicy") and old.get("ipFamilyPolicy"):
            spec["ipFamilyPolicy"] = old["ipFamilyPolicy"]
    if gets_node_ports(old) and gets_node_ports(spec):
        _keep_node_ports(spec, old)
    if needs_health_port(old) and needs_health_port(spec) and not spec.get("healthCheckNodePort"):
        spec["healthCheckNodePort"] = old.get("healthCheckNodePort")


def _keep_node_ports(spec: Raw, old: Raw) -> None:
    """By the names of the ports, where no other port has taken the number."""
    used = set(node_ports_of(spec)) & set(node_ports_of(old))
    known = {one.get("name", ""): one.get("nodePort") for one in old.get("ports") or ()}
    for port in spec.get("ports") or ():
        before = known.get(port.get("name", ""))
        if not port.get("nodePort") and before and before not in used:
            port["nodePort"] = before


def _same(spec: Raw, old: Raw, *fields: str) -> bool:
    return all(spec.get(field) == old.get(field) for field in fields)


def _drop(spec: Raw, *fields: str) -> None:
    for field in fields:
        spec.pop(field, None)
