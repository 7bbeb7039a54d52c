"""Creates and updates of Services, sent alike to ApiServer and to kube-apiserver."""

from __future__ import annotations

from typing import Any

Raw = dict[str, Any]

WEB: Raw = {"port": 80}
NAMED: list[Raw] = [{"name": "a", "port": 80}, {"name": "b", "port": 81}]
LB: Raw = {"type": "LoadBalancer", "ports": [WEB]}
BOTH: list[Raw] = [{"name": "t", "port": 53}, {"name": "u", "port": 53, "protocol": "UDP"}]

CREATED: dict[str, Raw] = {
    "plain": {"ports": [WEB]},
    "plain-asks": {"ports": [WEB], "clusterIP": "10.43.0.77"},
    "plain-taken": {"ports": [WEB], "clusterIP": "10.43.0.77"},
    "plain-outside": {"ports": [WEB], "clusterIP": "10.99.7.7"},
    "plain-nonsense": {"ports": [WEB], "clusterIP": "ten"},
    "plain-plural-only": {"ports": [WEB], "clusterIPs": ["10.43.0.78"]},
    "plain-differs": {"ports": [WEB], "clusterIP": "10.43.0.79", "clusterIPs": ["10.43.0.80"]},
    "plain-node-port": {"ports": [{"port": 80, "nodePort": 30001}]},
    "plain-local": {"ports": [WEB], "externalTrafficPolicy": "Local"},
    "plain-external": {"ports": [WEB], "externalIPs": ["192.168.3.3"]},
    "sticky": {"ports": [WEB], "sessionAffinity": "ClientIP"},
    "sticky-wrong": {"ports": [WEB], "sessionAffinity": "Always"},
    "headless": {"ports": [WEB], "clusterIP": "None", "selector": {"a": "b"}},
    "headless-lone": {"clusterIP": "None"},
    "headless-balancer": {**LB, "clusterIP": "None"},
    "named-elsewhere": {"type": "ExternalName", "externalName": "example.com"},
    "named-nowhere": {"type": "ExternalName"},
    "named-with-address": {"type": "ExternalName", "externalName": "example.com", "clusterIP": "10.43.0.81"},
    "node-port": {"type": "NodePort", "ports": [WEB]},
    "node-port-asks": {"type": "NodePort", "ports": [{"port": 80, "nodePort": 30007}]},
    "node-port-taken": {"type": "NodePort", "ports": [{"port": 80, "nodePort": 30007}]},
    "node-port-outside": {"type": "NodePort", "ports": [{"port": 80, "nodePort": 80}]},
    "node-port-class": {"type": "NodePort", "ports": [WEB], "loadBalancerClass": "a.example/b"},
    "balancer": LB,
    "balancer-without-node-ports": {**LB, "allocateLoadBalancerNodePorts": False},
    "balancer-local": {**LB, "externalTrafficPolicy": "Local"},
    "balancer-health-port": {**LB, "externalTrafficPolicy": "Local", "healthCheckNodePort": 30009},
    "balancer-health-alone": {**LB, "healthCheckNodePort": 30010},
    "balancer-two-protocols": {"type": "LoadBalancer", "ports": BOTH},
    "balancer-class": {**LB, "loadBalancerClass": "a.example/b"},
    "balancer-target": {"type": "LoadBalancer", "ports": [{"port": 80, "targetPort": "http"}]},
    "dual": {"ports": [WEB], "ipFamilyPolicy": "RequireDualStack"},
    "dual-if-there": {"ports": [WEB], "ipFamilyPolicy": "PreferDualStack"},
    "sixth": {"ports": [WEB], "ipFamilies": ["IPv6"]},
    "family-wrong": {"ports": [WEB], "ipFamilies": ["IPv5"]},
    "no-ports": {"type": "LoadBalancer"},
    "nameless": {"ports": [{"port": 80}, {"port": 81}]},
    "same-name": {"ports": [{"name": "a", "port": 80}, {"name": "a", "port": 81}]},
    "same-port": {"ports": [{"name": "a", "port": 80}, {"name": "b", "port": 80}]},
    "bad-name": {"ports": [{"name": "A_b", "port": 80}]},
    "bad-port": {"ports": [{"port": 70000}]},
    "bad-protocol": {"ports": [{"port": 80, "protocol": "ICMP"}]},
    "bad-type": {"type": "Magic", "ports": [WEB]},
    "bad-policy": {**LB, "externalTrafficPolicy": "Near"},
}
"""Creates, in this order; later ones may request what earlier ones were allocated."""

CHANGED: dict[str, tuple[Raw, Raw]] = {
    "sent-again": (LB, LB),
    "more-ports": ({**LB, "ports": NAMED[:1]}, {**LB, "ports": NAMED}),
    "balancer-to-plain": (LB, {"type": "ClusterIP", "ports": [WEB]}),
    "balancer-to-node-port": (LB, {"type": "NodePort", "ports": [WEB]}),
    "plain-to-balancer": ({"ports": [WEB]}, LB),
    "plain-to-name": (
        {"ports": [WEB]},
        {"type": "ExternalName", "externalName": "a.example", "ports": [WEB]},
    ),
    "name-to-plain": ({"type": "ExternalName", "externalName": "a.example"}, {"ports": [WEB]}),
    "local-to-cluster": (
        {**LB, "externalTrafficPolicy": "Local"},
        {**LB, "externalTrafficPolicy": "Cluster"},
    ),
    "cluster-to-local": (LB, {**LB, "externalTrafficPolicy": "Local"}),
    "other-health-port": (
        {**LB, "externalTrafficPolicy": "Local"},
        {**LB, "externalTrafficPolicy": "Local", "healthCheckNodePort": 30020},
    ),
    "other-address": ({"ports": [WEB]}, {"ports": [WEB], "clusterIP": "10.43.0.88"}),
    "becomes-headless": ({"ports": [WEB]}, {"ports": [WEB], "clusterIP": "None"}),
    "class-later": (LB, {**LB, "loadBalancerClass": "a.example/b"}),
    "other-node-port": (LB, {**LB, "ports": [{"port": 80, "nodePort": 30021}]}),
}
"""A Service, and what is PUT over it without the values that the server chose."""


def blurred(spec: Raw) -> Raw:
    """The spec, with allocated values replaced by whether they are set."""

    def port(one: Raw) -> Raw:
        return {**one, "nodePort": _number(one["nodePort"])} if "nodePort" in one else one

    made = {**spec, "ports": [port(one) for one in spec.get("ports") or ()]}
    if "healthCheckNodePort" in made:
        made["healthCheckNodePort"] = _number(made["healthCheckNodePort"])
    if "clusterIPs" in made:
        made["clusterIPs"] = [_address(one) for one in made["clusterIPs"]]
    if "clusterIP" in made:
        made["clusterIP"] = _address(made["clusterIP"])
    return {key: value for key, value in made.items() if value}


def _number(port: int) -> Any:
    return port if port < 30086 else "some port"


def _address(text: str) -> str:
    """Whether the address is one of the first 256, which are allocated on request only."""
    return "some address" if text.startswith("10.43.") and not text.startswith("10.43.0.") else text
