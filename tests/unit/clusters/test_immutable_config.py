from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.clusters.builders import (
    ALL_ROLES,
    SECRETS,
    SERVER,
    a_cluster,
    a_machine,
    a_pool,
    look,
    record_of,
    some,
)
from tests.unit.clusters.test_cluster import a_raw_cluster, a_raw_pool, read

from windrow.bootstrap.immutable_config import IMMUTABLE_KEYS
from windrow.clusters.api.immutable_config import (
    ImmutableConfig,
    find_immutable_config,
    read_immutable_config,
    render_immutable_config,
)
from windrow.clusters.plan.actions import Action, RecordImmutableConfig
from windrow.clusters.plan.planner import find_refusals, plan_cluster
from windrow.clusters.state import ClusterState, GuestState
from windrow.machines.port import Problem

RKE2, K3S = "v1.35.1+rke2r1", "v1.35.1+k3s1"
GLOBAL = "spec.rkeConfig.machineGlobalConfig"


def a_running(
    began: dict[str, Any], asked: dict[str, Any], version: str = RKE2, directory: str = "", **rke: Any
) -> dict[str, Any]:
    """A Cluster that began with one machineGlobalConfig and now has another."""
    kept = {"machineGlobalConfig": began, "dataDirectory": directory}
    return a_raw_cluster(
        rke={"machineGlobalConfig": asked, **rke},
        kubernetesVersion=version,
        status={"version": version, "initialized": True, "immutableConfig": kept},
    )


def errors_of(raw: dict[str, Any]) -> list[Problem]:
    return [one for one in read(raw).problems if one.severity == "error"]


# What is asked of each key that a cluster began without, and how it is told.
CHANGES: dict[str, tuple[Any, str]] = {
    "cluster-cidr": ("10.44.0.0/16", "'10.44.0.0/16', and the cluster began with '10.42.0.0/16'"),
    "service-cidr": ("10.45.0.0/16", "'10.45.0.0/16', and the cluster began with '10.43.0.0/16'"),
    "cluster-dns": (["10.43.0.53"], "'10.43.0.53', and the cluster began with '10.43.0.10'"),
    "cluster-domain": ("fruit.local", "'fruit.local', and the cluster began with 'cluster.local'"),
    "cni": ("cilium", "'cilium', and the cluster began with 'canal'"),
    "flannel-backend": ("host-gw", "'host-gw', and the cluster began with 'vxlan'"),
    "flannel-external-ip": (True, "'true', and the cluster began with 'false'"),
    "flannel-ipv6-masq": (True, "'true', and the cluster began with 'false'"),
    "disable-network-policy": (True, "'true', and the cluster began with 'false'"),
    "disable-helm-controller": ("true", "'true', and the cluster began with 'false'"),
    "disable-kube-proxy": (True, "'true', and the cluster began with 'false'"),
    "cloud-provider-name": ("external", "'external', and the cluster began with"),
    "disable-cloud-controller": (True, "'true', and the cluster began with 'false'"),
    "disable": (["traefik", "servicelb"], "'traefik,servicelb', and the cluster began with none"),
    "enable-servicelb": (True, "'true', and the cluster began with 'false'"),
    "egress-selector-mode": ("disabled", "'disabled', and the cluster began with 'agent'"),
    "embedded-registry": (True, "'true', and the cluster began with 'false'"),
    "supervisor-metrics": (True, "'true', and the cluster began with 'false'"),
    "secrets-encryption": ("{other}", "'{other}', and the cluster began with"),
    "datastore-endpoint": ("mysql://u:secret@db", "'set', and the cluster began with none"),
}


def test_there_is_a_change_of_each_key_in_the_table():
    assert set(CHANGES) == {key.name for key in IMMUTABLE_KEYS}


@pytest.mark.parametrize("key", IMMUTABLE_KEYS, ids=lambda key: key.name)
@pytest.mark.parametrize("version", [RKE2, K3S])
def test_a_changed_key_is_refused_with_both_values_and_machines_are_made_without(key, version):
    name, distribution = key.name, "k3s" if version == K3S else "rke2"
    value, told = CHANGES[name]
    if name == "secrets-encryption":  # it is on in RKE2 and off in K3s
        value = distribution == "k3s"
        told = told.format(other=str(value).lower())
    # The own provider of K3s, with whose own controllers the keys about them are not derived.
    began = {"cloud-provider-name": "none"} if version == K3S and name != "cloud-provider-name" else {}

    reading = read(a_running(began, {**began, name: value}, version))
    problems = [
        one for one in reading.problems if one.severity == "error" and one.field == f"{GLOBAL}.{name}"
    ]

    if distribution not in key.defaults:
        assert problems == []
        return
    (problem,) = problems
    assert problem.message.startswith(f"{name} is {told}")
    assert problem.message.endswith(f": {key.why}")
    assert "secret" not in problem.hint or name == "secrets-encryption"
    assert reading.cluster.global_config == began
    if not key.is_secret:
        assert "new machines are made with it until then" in problem.hint


@pytest.mark.parametrize(
    ("began", "asked", "version"),
    [
        ({}, {"cluster-cidr": "10.42.0.0/16", "service-cidr": ["10.43.0.0/16"]}, RKE2),
        ({"cluster-cidr": "10.1.0.0/16,fd00::/56"}, {"cluster-cidr": ["10.1.0.0/16", "fd00::/56"]}, K3S),
        ({"service-cidr": "10.1.0.0/16"}, {"service-cidr": "10.1.0.0/16", "cluster-dns": "10.1.0.10"}, RKE2),
        ({"cni": "multus,canal"}, {"cni": ["multus", "canal"]}, RKE2),
        ({}, {"cni": "canal", "disable-kube-proxy": False, "egress-selector-mode": "agent"}, RKE2),
        ({}, {"flannel-backend": "vxlan", "secrets-encryption": "false"}, K3S),
        ({"cni": "canal"}, {"cni": "canal", "kubelet-arg": ["max-pods=250"], "profile": "cis"}, RKE2),
        ({}, {"disable": ["traefik"]}, K3S),
        # Harvester's provider turns it off already.
        ({}, {"disable": ["servicelb"], "disable-cloud-controller": True}, K3S),
        # K3s is on Harvester unless it is told otherwise.
        ({}, {"cloud-provider-name": "harvester"}, K3S),
        ({"datastore-endpoint": True}, {"datastore-endpoint": "mysql://u:rotated@db"}, K3S),
        # Of the other distribution; they are warned of.
        ({}, {"flannel-backend": "host-gw"}, RKE2),
        ({}, {"cni": "cilium"}, K3S),
    ],
)  # fmt: skip
def test_what_comes_to_the_same_is_no_change(began, asked, version):
    reading = read(a_running(began, asked, version))

    assert [one for one in reading.problems if one.severity == "error" and "began" in one.message] == []
    assert reading.cluster.global_config == asked


def test_what_was_set_and_is_removed_is_told_and_machines_have_it():
    raw = a_running({"cni": "calico", "service-cidr": "10.1.0.0/16"}, {"kubelet-arg": ["v=2"]})

    cluster = read(raw).cluster

    assert [(one.message, one.hint) for one in errors_of(raw)] == [
        (
            "service-cidr is '10.43.0.0/16', and the cluster began with '10.1.0.0/16': its services have their addresses of it",
            "write service-cidr: 10.1.0.0/16 again: new machines are made with it until then; another value needs a new Cluster",
        ),
        (
            "cni is 'canal', and the cluster began with 'calico': its pods are connected by it",
            "write cni: calico again: new machines are made with it until then; another value needs a new Cluster",
        ),
    ]
    assert cluster.global_config == {"kubelet-arg": ["v=2"], "cni": "calico", "service-cidr": "10.1.0.0/16"}


def test_a_key_that_a_selector_changes_for_servers_is_refused_where_it_stands():
    for_servers = {"matchLabels": {"rke.cattle.io/etcd-role": "true"}}
    entries = [
        {"config": {"v": 2}},
        {"machineLabelSelector": for_servers, "config": {"cni": "cilium", "v": 3}},
        {"config": None},
    ]

    raw = a_running({"cni": "calico"}, {"cni": "calico"}, machineSelectorConfig=entries)
    cluster = read(raw).cluster

    (problem,) = errors_of(raw)
    assert problem.field == f"{GLOBAL}.cni"
    assert "cni is 'cilium', and the cluster began with 'calico'" in problem.message
    assert cluster.global_config == {"cni": "calico"}
    assert [entry["config"] for entry in cluster.selector_config] == [{"v": 2}, {"v": 3}, {}]
    alone = a_running({}, {}, machineSelectorConfig=entries)
    assert [one.field for one in errors_of(alone)] == ["spec.rkeConfig.machineSelectorConfig[1].config.cni"]


def test_what_a_selector_gives_to_workers_alone_is_no_change():
    for_workers = {"matchLabels": {"rke.cattle.io/worker-role": "true"}}
    entries = [{"machineLabelSelector": for_workers, "config": {"disable-kube-proxy": True}}]
    pools = [
        a_raw_pool("servers", workerRole=False),
        a_raw_pool("workers", etcdRole=False, controlPlaneRole=False),
    ]

    assert errors_of(a_running({}, {}, machineSelectorConfig=entries, machinePools=pools)) == []


FOR_TWO = {"matchLabels": {"rke.cattle.io/rke-machine-pool-name": "two"}}
DIFFERING = {
    "machineSelectorConfig": [{"machineLabelSelector": FOR_TWO, "config": {"disable-kube-proxy": True}}]
}


def test_servers_that_could_not_be_of_one_cluster_are_refused_before_it_begins():
    raw = a_raw_cluster(a_raw_pool("one"), a_raw_pool("two"), rke=DIFFERING)

    (problem,) = errors_of(raw)
    assert not read(raw).cluster.servers_agree
    assert problem.field == "spec.rkeConfig.machineSelectorConfig[0].config.disable-kube-proxy"
    assert problem.message == (
        "machineSelectorConfig gives servers different values of disable-kube-proxy, 'false' and 'true', and all servers of a "
        "cluster must share it"
    )


@pytest.mark.parametrize("rke", [DIFFERING, {"machineGlobalConfig": {"cluster-domain": "d" * 1001}}])
def test_a_cluster_that_runs_since_an_earlier_release_is_warned_of_its_servers_and_not_stopped(rke):
    pools = [a_raw_pool("one"), a_raw_pool("two")]

    reading = read(a_raw_cluster(*pools, rke=rke, status={"version": RKE2, "initialized": True}))

    told = [one.severity for one in reading.problems if one.field.endswith(("kube-proxy", "cluster-domain"))]
    assert told == ["warning"]
    assert errors_of(reading.cluster.raw) == []
    assert reading.cluster.servers_agree is False


def test_a_cluster_that_has_not_started_is_what_its_manifest_says_and_knows_what_its_init_server_has_otherwise():
    raw = a_running(
        {"service-cidr": "10.1.0.0/16"}, {"cni": "cilium"}, dataDirectories={"k8sDistro": "/data"}
    )
    raw["status"]["initialized"] = False

    reading = read(raw)

    assert reading.problems == ()
    assert reading.cluster.global_config == {"cni": "cilium"}
    assert reading.cluster.data_directory == "/data"
    assert reading.cluster.init_server_changes == (
        "service-cidr is '10.43.0.0/16', and the init server began with '10.1.0.0/16'",
        "cni is 'cilium', and the init server began with 'canal'",
        "spec.rkeConfig.dataDirectories.k8sDistro is '/data', and the init server began with none",
    )


def test_a_running_cluster_has_no_outdated_init_server_and_its_servers_agree_on_what_is_recorded():
    cluster = read(a_running({}, {"cni": "cilium"})).cluster

    assert cluster.servers_agree
    assert cluster.init_server_changes == ()


def test_an_init_server_that_has_what_is_asked_for_is_not_outdated():
    raw = a_running({"cni": "canal"}, {"kubelet-arg": ["v=2"]}, directory="/data", dataDirectories={"k8sDistro": "/data"})  # fmt: skip
    raw["status"]["initialized"] = False

    assert read(raw).cluster.init_server_changes == ()


def test_a_value_too_long_to_be_recorded_is_refused_before_the_cluster_begins():
    def asked(length: int) -> list[str]:
        return [one.message for one in errors_of(a_raw_cluster(rke={"machineGlobalConfig": {"cluster-domain": "d" * length}}))]  # fmt: skip

    assert asked(1000) == []
    assert asked(1001) == [f"{GLOBAL}.cluster-domain is too long"]


def test_another_directory_for_the_data_is_refused_and_machines_have_the_one_that_it_began_with():
    def asked(directory: str, began: str = "") -> tuple[str, list[str]]:
        raw = a_running({}, {}, directory=began, dataDirectories={"k8sDistro": directory})
        return read(raw).cluster.data_directory, [one.message for one in errors_of(raw)]

    where = "spec.rkeConfig.dataDirectories.k8sDistro"
    why = "its machines have their data there"
    assert asked("/data", "/data") == ("/data", [])
    assert asked("/data") == ("", [f"{where} is '/data', and the cluster began with none: {why}"])
    assert asked("", "/data") == ("/data", [f"{where} is none, and the cluster began with '/data': {why}"])
    assert asked("data", "/data") == ("/data", [f"{where} is 'data'"])


def test_a_cluster_from_before_it_was_recorded_is_not_compared():
    raw = a_raw_cluster(
        rke={"machineGlobalConfig": {"cni": "cilium"}}, status={"version": RKE2, "initialized": True}
    )

    assert errors_of(raw) == []
    assert read(raw).cluster.global_config == {"cni": "cilium"}
    assert read_immutable_config({"immutableConfig": ["x"]}) is None
    assert read_immutable_config({"immutableConfig": {"machineGlobalConfig": 3}}) == ImmutableConfig()


def test_what_is_recorded_are_the_keys_that_were_written_and_no_credential():
    config = {
        "cni": "cilium",
        "disable-kube-proxy": False,
        "cluster-dns": "",
        "v": 2,
        "datastore-endpoint": "x://u:p@h",
    }

    found = find_immutable_config("rke2", config, "/data")

    assert found == ImmutableConfig(
        {"cni": "cilium", "disable-kube-proxy": False, "datastore-endpoint": True}, "/data"
    )
    assert find_immutable_config("k3s", {"cni": "cilium"}, "") == ImmutableConfig()
    # A merge patch, when another machine is elected to start the cluster.
    assert render_immutable_config(ImmutableConfig({"cni": "canal"}), found) == {
        "machineGlobalConfig": {"cni": "canal", "disable-kube-proxy": None, "datastore-endpoint": None},
        "dataDirectory": "",
    }
    assert read_immutable_config({"immutableConfig": render_immutable_config(found, None)}) == found


NOW = a_machine("s1", a_pool("servers", 1, SERVER)).record.created
POOLS = (a_pool("servers", 1, ALL_ROLES), a_pool("workers", 1))


def a_state(problem: Problem | None = None, *, recorded: bool = True, **rest: Any) -> ClusterState:
    cluster = a_cluster(*POOLS)
    kept = ImmutableConfig() if recorded else None
    cluster = replace(cluster, recorded=replace(cluster.recorded, immutable_config=kept))
    first = a_machine("s1", POOLS[0])
    first = replace(first, record=replace(first.record, config_hash="h1"))
    rest = {"machines": (first,), "guest": GuestState("reachable"), **rest}
    problems = (problem,) if problem else ()
    return ClusterState(now=NOW, cluster=cluster, problems=problems, **rest)


@pytest.mark.parametrize(
    ("field", "recorded", "stops"),
    [
        (f"{GLOBAL}.cluster-cidr", True, False),
        ("spec.rkeConfig.machineSelectorConfig[1].config.cni", True, False),
        ("spec.rkeConfig.dataDirectories.k8sDistro", True, False),
        # What machines would be made with is not known.
        (f"{GLOBAL}.cluster-cidr", False, True),
        (f"{GLOBAL}.datastore-endpoint", True, True),
        (f"{GLOBAL}.cloud-provider-config", True, True),
        ("spec.rkeConfig.chartValues[rke2-multus].cni", True, True),
    ],
)
def test_a_running_cluster_goes_on_with_what_is_recorded_where_that_is_known(field, recorded, stops):
    state = a_state(Problem("x is y", "write z", field), recorded=recorded)

    assert bool(find_refusals(state)) == stops
    starting = replace(
        state, cluster=replace(state.cluster, recorded=replace(state.cluster.recorded, initialized=False))
    )
    assert find_refusals(starting)


def planned(state: ClusterState, kind: type[Action]) -> list[Action]:
    return [action for action in plan_cluster(state).actions if isinstance(action, kind)]


def test_what_servers_share_is_recorded_of_an_older_cluster_while_they_all_have_the_present_configuration():
    def asked(hashes: dict[str, str], **rest: Any) -> list[str]:
        state = a_state(config_hashes=hashes, secrets=SECRETS, **rest)
        return [action.pool for action in planned(state, RecordImmutableConfig)]

    assert asked({"servers": "h1"}, recorded=False) == ["servers"]
    assert asked({"servers": "h1"}, recorded=True) == []
    assert asked({"servers": "h2"}, recorded=False) == []
    assert asked({}, recorded=False) == []
    assert asked({"servers": "h1"}, recorded=False, machines=()) == []


def test_what_servers_share_is_not_recorded_where_they_differ():
    """Recorded as one pool has it, it would be given to new machines of the other."""
    state = a_state(config_hashes={"servers": "h1"}, secrets=SECRETS, recorded=False)

    differing = replace(state, cluster=replace(state.cluster, servers_agree=False))

    assert planned(state, RecordImmutableConfig)
    assert not planned(differing, RecordImmutableConfig)


def test_what_servers_share_is_recorded_once_all_have_the_present_configuration():
    servers = a_pool("servers", 3, SERVER)

    def recorded(*hashes: str) -> bool:
        machines = [
            record_of(one, config_hash=digest)
            for one, digest in zip(some("s", 3, servers), hashes, strict=True)
        ]
        state = look(a_cluster(servers), machines, config_hashes={"servers": "now"})
        return bool(planned(state, RecordImmutableConfig))

    assert recorded("now", "now", "now")
    assert not recorded("now", "now", "before")
    assert not recorded("now", "now", "")
