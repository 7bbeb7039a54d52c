"""The scheduler of the simulated Harvester."""

from __future__ import annotations

from fractions import Fraction

import pytest

from windrow.emulator.kit.scheduling import Placement
from windrow.emulator.vms.scheduler import Host, find_host

GI = 1 << 30


def a_host(name, **rest):
    plain = {
        "labels": {"kubevirt.io/schedulable": "true", "kubernetes.io/hostname": name},
        "ready": True,
        "taints": (),
        "cpu": Fraction(8),
        "memory": Fraction(32 * GI),
    }
    return Host(name, **{**plain, **rest})


def a_vmi(memory="4Gi", cpu="1", **spec):
    requests = {"cpu": cpu, "memory": memory}
    return {"metadata": {"name": "m"}, "spec": {"domain": {"resources": {"requests": requests}}, **spec}}


def only_on(key, operator, *values):
    term = {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}


def test_the_emptier_host_is_taken():
    hosts = [a_host("a", used_memory=Fraction(8 * GI)), a_host("b")]

    assert Placement("b") == find_host(a_vmi(), hosts)


def test_preferred_anti_affinity_comes_before_emptiness():
    selector = {"matchExpressions": [{"key": "team", "operator": "Exists"}]}
    term = {
        "weight": 100,
        "podAffinityTerm": {"labelSelector": selector, "topologyKey": "kubernetes.io/hostname"},
    }
    affinity = {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term]}}
    hosts = [a_host("a", pod_labels=({"team": "x"},)), a_host("b", used_memory=Fraction(20 * GI))]

    assert Placement("b") == find_host(a_vmi(affinity=affinity), hosts)


@pytest.mark.parametrize(
    ("key", "operator", "values", "fits"),
    [
        ("zone", "In", ("z1",), True),
        ("zone", "In", ("z2",), False),
        ("zone", "NotIn", ("z2",), True),
        ("zone", "Exists", (), True),
        ("zone", "DoesNotExist", (), False),
        ("rank", "Gt", ("3",), True),
        ("rank", "Lt", ("3",), False),
    ],
)
def test_required_node_affinity_is_honoured(key, operator, values, fits):
    labels = {"kubevirt.io/schedulable": "true", "zone": "z1", "rank": "7"}

    found = find_host(a_vmi(affinity=only_on(key, operator, *values)), [a_host("a", labels=labels)])

    assert bool(found.node) is fits


def test_the_message_counts_the_reasons():
    tainted = a_host(
        "c", taints=({"key": "kubevirt.io/drain", "value": "scheduling", "effect": "NoSchedule"},)
    )
    full = [a_host("a", memory=Fraction(4 * GI)), a_host("b", memory=Fraction(4 * GI))]

    found = find_host(a_vmi("8Gi"), [*full, tainted])

    assert not found.node
    assert found.message.startswith(
        "0/3 nodes are available: 2 Insufficient memory, 1 node(s) had untolerated taint {kubevirt.io/drain: scheduling}."
    )


def test_a_toleration_opens_a_tainted_host():
    host = a_host("a", taints=({"key": "gpu", "value": "yes", "effect": "NoSchedule"},))

    assert not find_host(a_vmi(), [host]).node
    assert Placement("a") == find_host(a_vmi(tolerations=[{"key": "gpu", "operator": "Exists"}]), [host])
    assert Placement("a") == find_host(a_vmi(tolerations=[{"operator": "Exists"}]), [host])


def test_a_host_that_is_not_ready_is_filtered():
    assert not find_host(a_vmi(), [a_host("a", ready=False)]).node


def test_a_host_is_filled_to_the_last_byte_but_not_further():
    overhead = 260 << 20
    host = a_host("a", used_memory=Fraction(28 * GI - overhead))

    assert Placement("a") == find_host(a_vmi("4Gi"), [host])
    assert not find_host(a_vmi(str(4 * GI + 1)), [host]).node
