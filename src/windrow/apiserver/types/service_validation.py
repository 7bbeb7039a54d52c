"""Validation of Services; messages are those of kube-apiserver."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from windrow.apiserver.apierrors import (
    Cause,
    duplicate,
    forbidden_value,
    invalid_value,
    not_supported,
    required,
)
from windrow.apiserver.types import service_defaults
from windrow.apiserver.types.registry import name_errors
from windrow.core.formats.cidr import is_address
from windrow.kubernetes.objects import nested

Raw = dict[str, Any]

TYPES = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")
PROTOCOLS = ("SCTP", "TCP", "UDP")
FAMILIES = ("IPv4", "IPv6")
POLICIES = ("PreferDualStack", "RequireDualStack", "SingleStack")
TRAFFIC = ("Cluster", "Local")
PORT_RANGE = "must be between 1 and 65535, inclusive"
SET_ONCE = "may not change once set"


def validate_service(raw: Raw, old: Raw | None) -> list[Cause]:
    """Every validation error. `old` is None for a create."""
    spec = raw.get("spec") or {}
    found = [fault for rule in _RULES for fault in rule(spec)]
    return found + (_validate_change(spec, old.get("spec") or {}) if old is not None else [])


def _type(spec: Raw) -> Iterable[Cause]:
    headless = service_defaults.is_headless(spec)
    if not spec.get("ports") and not headless and spec.get("type") != service_defaults.EXTERNAL_NAME:
        yield required("spec.ports")
    if headless and service_defaults.may_have_node_ports(spec):
        text = f"may not be set to 'None' for {spec['type']} services"
        yield invalid_value("spec.clusterIPs[0]", service_defaults.HEADLESS, text)
    if spec.get("type") == service_defaults.EXTERNAL_NAME:
        for field in ("clusterIPs", "ipFamilies", "ipFamilyPolicy"):
            if spec.get(field):
                yield forbidden_value(f"spec.{field}", "may not be set for ExternalName services")
        if not spec.get("externalName"):
            yield required("spec.externalName")


def _ports(spec: Raw) -> Iterable[Cause]:
    ports = spec.get("ports") or []
    names: set[str] = set()
    for index, port in enumerate(ports):
        yield from _port(port, f"spec.ports[{index}]", names, needs_name=len(ports) > 1)


def _port(port: Raw, path: str, names: set[str], *, needs_name: bool) -> Iterable[Cause]:
    name = port.get("name") or ""
    if needs_name and not name:
        yield required(f"{path}.name")
    if name:
        for text in name_errors("label", name):
            yield invalid_value(f"{path}.name", name, text)
        if name in names:
            yield duplicate(f"{path}.name", name)
        names.add(name)
    if not 1 <= port.get("port", 0) <= 65535:
        yield invalid_value(f"{path}.port", port.get("port", 0), PORT_RANGE)
    if port.get("protocol", "TCP") not in PROTOCOLS:
        yield not_supported(f"{path}.protocol", port["protocol"], PROTOCOLS)
    target = port.get("targetPort")
    if isinstance(target, int) and target and not 1 <= target <= 65535:
        yield invalid_value(f"{path}.targetPort", target, PORT_RANGE)


def _affinity(spec: Raw) -> Iterable[Cause]:
    if spec.get("sessionAffinity", "None") not in ("ClientIP", "None"):
        yield not_supported("spec.sessionAffinity", spec["sessionAffinity"], ("ClientIP", "None"))


def _addresses(spec: Raw) -> Iterable[Cause]:
    if spec.get("type") == service_defaults.EXTERNAL_NAME:
        return
    one, several = spec.get("clusterIP") or "", spec.get("clusterIPs") or []
    if several and not one:
        yield invalid_value("spec.clusterIPs", several, "must be empty when `clusterIP` is not specified")
    elif several and several[0] != one:
        yield invalid_value("spec.clusterIPs", several, "first value must match `clusterIP`")
    for index, family in enumerate(spec.get("ipFamilies") or ()):
        if family not in FAMILIES:
            yield not_supported(f"spec.ipFamilies[{index}]", family, FAMILIES)
        if family in spec["ipFamilies"][:index]:
            yield duplicate(f"spec.ipFamilies[{index}]", family)
    if spec.get("ipFamilyPolicy") not in (None, *POLICIES):
        yield not_supported("spec.ipFamilyPolicy", spec["ipFamilyPolicy"], POLICIES)
    for index, address in enumerate(several):
        if not is_address(address) and (address != service_defaults.HEADLESS or index):
            text = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
            yield invalid_value(f"spec.clusterIPs[{index}]", address, text)


def _service_types(spec: Raw) -> Iterable[Cause]:
    if spec.get("type", service_defaults.CLUSTER_IP) not in TYPES:
        yield not_supported("spec.type", spec["type"], TYPES)


def _numbers(spec: Raw) -> Iterable[Cause]:
    """Node ports on a ClusterIP Service, duplicate node ports, duplicate ports."""
    ports = spec.get("ports") or []
    if spec.get("type") == service_defaults.CLUSTER_IP:
        text = "may not be used when `type` is 'ClusterIP'"
        for index, port in enumerate(ports):
            if port.get("nodePort"):
                yield forbidden_value(f"spec.ports[{index}].nodePort", text)
    seen: set[tuple[str, int]] = set()
    for index, port in enumerate(ports):
        place = (port.get("protocol", "TCP"), port.get("nodePort") or 0)
        if place[1] and place in seen:
            yield duplicate(f"spec.ports[{index}].nodePort", place[1])
        seen.add(place)
    seen.clear()
    for index, port in enumerate(ports):
        place = (port.get("protocol", "TCP"), port.get("port", 0))
        if place in seen:
            yield duplicate(f"spec.ports[{index}]", _go_service_port(*place))
        seen.add(place)


def _go_service_port(protocol: str, port: int) -> Raw:
    """The duplicate port as kube-apiserver prints it: its internal ServicePort struct."""
    return {
        "Name": "",
        "Protocol": protocol,
        "AppProtocol": None,
        "Port": port,
        "TargetPort": 0,
        "NodePort": 0,
    }


def _load_balancer_only(spec: Raw) -> Iterable[Cause]:
    if spec.get("type") == service_defaults.LOAD_BALANCER:
        return
    text = "may only be used when `type` is 'LoadBalancer'"
    if spec.get("loadBalancerSourceRanges"):
        yield forbidden_value("spec.LoadBalancerSourceRanges", text)
    if spec.get("allocateLoadBalancerNodePorts") is not None:
        yield forbidden_value("spec.allocateLoadBalancerNodePorts", text)
    if spec.get("loadBalancerClass") is not None:
        yield forbidden_value("spec.loadBalancerClass", text)


def _traffic(spec: Raw) -> Iterable[Cause]:
    policy, port = spec.get("externalTrafficPolicy"), spec.get("healthCheckNodePort")
    if policy and not service_defaults.is_external(spec):
        text = "may only be set for externally-accessible services"
        yield invalid_value("spec.externalTrafficPolicy", policy, text)
    elif policy and policy not in TRAFFIC:
        yield not_supported("spec.externalTrafficPolicy", policy, TRAFFIC)
    if port and not service_defaults.needs_health_port(spec):
        text = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'"
        yield invalid_value("spec.healthCheckNodePort", port, text)
    if spec.get("internalTrafficPolicy") not in (None, *TRAFFIC):
        yield not_supported("spec.internalTrafficPolicy", spec["internalTrafficPolicy"], TRAFFIC)


_RULES: tuple[Callable[[Raw], Iterable[Cause]], ...] = (
    _type,
    _ports,
    _affinity,
    _addresses,
    _service_types,
    _numbers,
    _load_balancer_only,
    _traffic,
)


def _validate_change(spec: Raw, old: Raw) -> list[Cause]:
    causes = []
    if (
        service_defaults.has_addresses(spec)
        and service_defaults.has_addresses(old)
        and nested(old, "clusterIPs", 0)
    ):
        now = spec.get("clusterIPs") or []
        for index, address in enumerate(old["clusterIPs"][: len(now) or 1]):
            if not now:
                text = "primary clusterIP can not be unset"
                causes.append(invalid_value("spec.clusterIPs[0]", now, text))
            elif now[index] != address:
                causes.append(invalid_value(f"spec.clusterIPs[{index}]", now, SET_ONCE))
    needed = service_defaults.needs_health_port(old) and service_defaults.needs_health_port(spec)
    if needed and spec.get("healthCheckNodePort") != old.get("healthCheckNodePort"):
        causes.append(forbidden_value("spec.healthCheckNodePort", "field is immutable"))
    stays = spec.get("type") == old.get("type") == service_defaults.LOAD_BALANCER
    if stays and spec.get("loadBalancerClass") != old.get("loadBalancerClass"):
        causes.append(invalid_value("spec.loadBalancerClass", spec.get("loadBalancerClass"), SET_ONCE))
    return causes
