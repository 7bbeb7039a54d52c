"""The scheduler of the simulated Harvester."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from windrow.emulator.kit.scheduling import Placement
from windrow.emulator.vms.pod_affinity import read_pod
from windrow.emulator.vms.scheduler import Host, HostAllocations, find_host

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


def a_vmi(memory="4Gi", cpu="1", labels=None, **spec):
    requests = {"cpu": cpu, "memory": memory}
    metadata = {"name": "m", "namespace": "default", "labels": labels or {}}
    return {"metadata": metadata, "spec": {"domain": {"resources": {"requests": requests}}, **spec}}


def a_pod(namespace="default", affinity=None, **labels):
    metadata = {"name": "p", "namespace": namespace, "labels": labels}
    return read_pod({"metadata": metadata, "spec": {"affinity": affinity or {}}})


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
    hosts = [a_host("a", pods=(a_pod(team="x"),)), a_host("b", used_memory=Fraction(20 * GI))]

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


# --- affinity to pods, and preferences ---------------------------------------------------------------------------

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
ZONE, HOSTNAME = "topology.kubernetes.io/zone", "kubernetes.io/hostname"


def a_term(key=HOSTNAME, **rest):
    return {"labelSelector": {"matchLabels": {"team": "x"}}, "topologyKey": key, **rest}


def required(kind, **term):
    return {kind: {REQUIRED: [a_term(**term)]}}


def preferred(kind, weight=100, **term):
    return {kind: {PREFERRED: [{"weight": weight, "podAffinityTerm": a_term(**term)}]}}


def in_zone(name, zone, **rest):
    return a_host(
        name,
        labels={"kubevirt.io/schedulable": "true", HOSTNAME: name, ZONE: zone, **rest.pop("labels", {})},
        **rest,
    )


def hosts_with_a_pod(**pod):
    """Two hosts of zone 1, the first with a pod of team x; one of zone 2."""
    return [
        in_zone("a", "z1", pods=(a_pod(**{"team": "x", **pod}),), used_memory=Fraction(4 * GI)),
        in_zone("b", "z1"),
        in_zone("c", "z2"),
    ]


AWAY_FROM_HOST, AWAY_FROM_ZONE = required("podAntiAffinity"), required("podAntiAffinity", key=ZONE)
PLACES = [
    # What the pod asks, of which pod, and the host it gets.
    (required("podAffinity"), {}, "a"),
    (required("podAffinity", key=ZONE), {}, "b"),  # the emptier host of the zone
    (AWAY_FROM_HOST, {}, "b"),
    (AWAY_FROM_ZONE, {}, "c"),
    (preferred("podAffinity"), {}, "a"),
    (preferred("podAntiAffinity", key=ZONE), {}, "c"),
    # A term is about its own namespace unless it names others.
    (AWAY_FROM_ZONE, {"namespace": "other"}, "b"),
    (required("podAntiAffinity", key=ZONE, namespaces=["other"]), {"namespace": "other"}, "c"),
    (required("podAntiAffinity", key=ZONE, namespaceSelector={}), {"namespace": "other"}, "c"),
    (required("podAntiAffinity", key=ZONE, matchLabelKeys=["set"]), {"set": "2"}, "b"),
    (required("podAntiAffinity", key=ZONE, mismatchLabelKeys=["set"]), {"set": "2"}, "c"),
    (required("podAntiAffinity", labelSelector=None), {}, "b"),
    # What the pod that is there asks of newcomers.
    ({}, {"affinity": AWAY_FROM_ZONE}, "c"),
    ({}, {"affinity": preferred("podAntiAffinity", key=ZONE)}, "c"),
    ({}, {"affinity": required("podAffinity")}, "a"),
]


@pytest.mark.parametrize(("affinity", "pod", "host"), PLACES)
def test_pods_are_near_and_apart_by_the_topology_of_each_term(affinity, pod, host):
    labels = {"team": "x", "set": "1"}

    assert Placement(host) == find_host(a_vmi(affinity=affinity, labels=labels), hosts_with_a_pod(**pod))


def test_the_first_of_pods_that_want_to_be_together_is_placed_and_a_stranger_is_not():
    together = required("podAffinity", key=ZONE)
    empty = [in_zone("a", "z1"), a_host("b", labels={"kubevirt.io/schedulable": "true"})]

    assert Placement("a") == find_host(a_vmi(affinity=together, labels={"team": "x"}), empty)
    assert "2 node(s) didn't match pod affinity rules" in find_host(a_vmi(affinity=together), empty).message


@pytest.mark.parametrize(
    ("affinity", "pod", "reason"),
    [
        (AWAY_FROM_ZONE, {}, "node(s) didn't match pod anti-affinity rules"),
        ({}, {"affinity": AWAY_FROM_ZONE}, "node(s) didn't satisfy existing pods anti-affinity rules"),
    ],
)
def test_a_pod_that_may_be_nowhere_is_told_why(affinity, pod, reason):
    hosts = hosts_with_a_pod(**pod)[:2]

    message = find_host(a_vmi(affinity=affinity, labels={"team": "x"}), hosts).message

    assert message.startswith(f"0/2 nodes are available: 2 {reason}.")


def wishing(*terms):
    return {"nodeAffinity": {PREFERRED: [{"weight": weight, "preference": term} for weight, term in terms]}}


def test_preferred_node_affinity_weighs_zones_and_comes_before_emptiness():
    full = Fraction(20 * GI)
    hosts = [in_zone("a", "z1"), in_zone("b", "z2", used_memory=full), in_zone("c", "z3", used_memory=full)]
    second, third = (
        {"matchExpressions": [{"key": ZONE, "operator": "In", "values": [zone]}]} for zone in ("z2", "z3")
    )

    assert Placement("b") == find_host(a_vmi(affinity=wishing((60, second), (40, third))), hosts)
    assert Placement("a") == find_host(a_vmi(affinity=wishing((100, {}))), hosts)


def test_a_node_is_required_by_its_name():
    field = {"key": "metadata.name", "operator": "In", "values": ["b"]}
    affinity = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchFields": [field]}]}}}

    assert Placement("b") == find_host(a_vmi(affinity=affinity), [in_zone("a", "z1"), in_zone("b", "z1")])


# --- what KubeVirt adds: CPUs and devices ------------------------------------------------------------------------

GPU = "nvidia.com/NVIDIA_A2-4Q"


def with_domain(**domain):
    made = a_vmi()
    made["spec"]["domain"] |= domain
    return made


def with_label(name, key):
    return a_host(name, labels={"kubevirt.io/schedulable": "true", key: "true"})


def test_a_cpu_model_wants_a_host_that_has_it():
    hosts = [a_host("a"), with_label("b", "cpu-model.node.kubevirt.io/Haswell-noTSX")]

    assert Placement("b") == find_host(with_domain(cpu={"model": "Haswell-noTSX"}), hosts)
    for own in ("host-model", "host-passthrough"):
        assert Placement("a") == find_host(with_domain(cpu={"model": own}), hosts)


def test_pinned_cpus_want_a_host_with_a_cpu_manager_and_an_isolated_thread_one_more():
    pinned = {"dedicatedCpuPlacement": True}
    hosts = [a_host("a"), with_label("b", "cpumanager")]

    assert Placement("b") == find_host(with_domain(cpu=pinned), hosts)
    isolated = with_domain(cpu={**pinned, "isolateEmulatorThread": True})
    assert Placement("b") == find_host(isolated, hosts)
    full = replace(hosts[1], used_cpu=Fraction(7))  # one of eight is free
    assert Placement("b") == find_host(with_domain(cpu=pinned), [full])
    assert "1 Insufficient cpu" in find_host(isolated, [full]).message


@pytest.mark.parametrize("field", ["gpus", "hostDevices"])
def test_a_device_is_given_while_a_host_has_one(field):
    asking = with_domain(devices={field: [{"name": "one", "deviceName": GPU}]})
    hosts = [a_host("a"), a_host("b", devices={GPU: 1})]

    assert Placement("b") == find_host(asking, hosts)
    assert (
        f"2 Insufficient {GPU}" in find_host(asking, [hosts[0], replace(hosts[1], devices={GPU: 0})]).message
    )


def test_a_device_is_free_again_when_its_machine_is_gone():
    asking = {**with_domain(devices={"gpus": [{"name": "one", "deviceName": GPU}]})}
    asking["metadata"]["uid"] = "u"
    node = {
        "metadata": {"name": "a"},
        "status": {"allocatable": {"cpu": "8", "memory": "32Gi", GPU: "1"}},
    }
    allocations = HostAllocations()

    allocations.assign(asking, "a")
    assert allocations.read_host(node).devices == {GPU: 0}
    allocations.release("u")
    assert allocations.read_host(node).devices == {GPU: 1}


def test_a_pod_with_a_local_volume_goes_where_the_volume_is_or_waits():
    hosts = [a_host("a", used_memory=Fraction(8 * GI)), a_host("b")]

    assert Placement("a") == find_host(a_vmi(), hosts, ["a"])
    lost = [a_host("a", cordoned=True), a_host("b")]
    assert find_host(a_vmi(), lost, ["a"]).message.startswith(
        "0/2 nodes are available: 1 node(s) had volume node affinity conflict, 1 node(s) were unschedulable."
    )
    assert not find_host(a_vmi(), hosts, ["a", "b"]).node
