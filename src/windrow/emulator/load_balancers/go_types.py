"""The Go types into which the load balancer's webhook decodes LoadBalancers and IPPools (v1beta1)."""

from __future__ import annotations

from windrow.apiserver.types.go_types import find_mistyped
from windrow.emulator.kit.go_types import read_structs
from windrow.kubernetes.objects import Raw

_CONDITION = {
    "type": "string=condition.Cond",
    "status": "string=v1.ConditionStatus",
    **dict.fromkeys(("lastUpdateTime", "lastTransitionTime", "reason", "message"), "string"),
}
_STRUCTS = read_structs(
    {
        "LoadBalancer": {
            "spec": "LoadBalancerSpec=v1beta1.LoadBalancerSpec",
            "status": "LoadBalancerStatus=v1beta1.LoadBalancerStatus",
        },
        "LoadBalancerSpec": {
            **dict.fromkeys(("description", "ipPool"), "string"),
            "workloadType": "string=v1beta1.WorkloadType",
            "ipam": "string=v1beta1.IPAM",
            "listeners": "[]Listener=[]v1beta1.Listener",
            "backendServerSelector": "{}[]string",
            "healthCheck": "HealthCheck=v1beta1.HealthCheck",
        },
        "LoadBalancerStatus": {
            "backendServers": "[]string",
            "allocatedAddress": "AllocatedAddress=v1beta1.AllocatedAddress",
            "address": "string",
            "conditions": "[]Condition=[]v1beta1.Condition",
        },
        "AllocatedAddress": dict.fromkeys(("ipPool", "ip", "mask", "gateway"), "string"),
        "Listener": {
            "name": "string",
            **dict.fromkeys(("port", "backendPort"), "int32"),
            "protocol": "string=v1.Protocol",
        },
        "HealthCheck": dict.fromkeys(
            ("port", "successThreshold", "failureThreshold", "periodSeconds", "timeoutSeconds"), "uint"
        ),
        "IPPool": {
            "spec": "IPPoolSpec=v1beta1.IPPoolSpec",
            "status": "IPPoolStatus=v1beta1.IPPoolStatus",
        },
        "IPPoolSpec": {
            "description": "string",
            "ranges": "[]Range=[]v1beta1.Range",
            "selector": "Selector=v1beta1.Selector",
        },
        "Range": dict.fromkeys(("rangeStart", "rangeEnd", "subnet", "gateway"), "string"),
        "Selector": {"priority": "uint32", "network": "string", "scope": "[]Tuple=[]v1beta1.Tuple"},
        "Tuple": dict.fromkeys(("project", "namespace", "guestCluster"), "string"),
        "IPPoolStatus": {
            **dict.fromkeys(("total", "available"), "int64"),
            "lastAllocated": "string",
            **dict.fromkeys(("allocated", "allocatedHistory"), "{}string"),
            "conditions": "[]Condition=[]v1beta1.Condition",
        },
        "Condition": _CONDITION,
    }
)


def decoding_fault(kind: str, raw: Raw) -> str:
    """What Go's decoder says of the first field that has another JSON type; "" without one."""
    return find_mistyped(_STRUCTS.__getitem__, kind, raw, is_sorted=True)
