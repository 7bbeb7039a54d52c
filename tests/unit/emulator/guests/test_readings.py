"""Tokens, settings, unit files, etcd membership, kubelet rules, chart values: the parts without time."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest
from tests.support.clock import NOON, run_driven

from windrow.core import pki
from windrow.emulator.guest_cluster.charts import default_values, merge_values, render_arguments
from windrow.emulator.guest_cluster.control_plane import taint_by_readiness
from windrow.emulator.guest_cluster.distribution.distribution import BadSettings, Settings
from windrow.emulator.guest_cluster.distribution.rke2 import RKE2
from windrow.emulator.guest_cluster.distribution.settings import check_settings, read_settings
from windrow.emulator.guest_cluster.distribution.tokens import BadToken, Token, hash_authorities, parse_token
from windrow.emulator.guest_cluster.etcd import EtcdMember, EtcdMembers, JoinRefused, NotMember
from windrow.emulator.guest_cluster.kubelet import BadKubelet, parse_labels, parse_taints
from windrow.emulator.guest_os.delays import GuestDelays
from windrow.emulator.guest_os.hardware import Disk, Hardware
from windrow.emulator.guest_os.operating_system import GuestOS
from windrow.emulator.guest_os.systemd import expand_specifiers, parse_unit
from windrow.emulator.kit.scheduling import find_untolerated

from .testbed import MachineTestbed

# -- tokens

HASH = "a" * 64


@pytest.mark.parametrize(
    ("text", "token"),
    [
        ("secret", Token(password="secret")),
        ("with:colon", Token(password="with:colon")),
        (f"K10{HASH}::server:pw", Token(HASH, "server", "pw")),
        (f"K10{HASH}::node:p:w", Token(HASH, "node", "p:w")),
        (f"K10{HASH}::abcdef.0123456789abcdef", Token(HASH, bootstrap="abcdef.0123456789abcdef")),
        ("abcdef.0123456789abcdef", Token(bootstrap="abcdef.0123456789abcdef")),
    ],
)
def test_every_form_of_a_token(text: str, token: Token):
    assert parse_token(text) == token


@pytest.mark.parametrize("text", ["", "K10abc::server:pw", f"K10{HASH}::server", f"K10{HASH}::server:"])
def test_what_is_no_token(text: str):
    with pytest.raises(BadToken):
        parse_token(text)


def test_one_certificate_is_hashed_as_text_and_a_chain_by_its_root():
    root, _ = pki.new_ca("root", NOON, 10)
    other, _ = pki.new_ca("other", NOON, 10)

    assert hash_authorities(root) == hashlib.sha256(root.encode()).hexdigest()
    assert hash_authorities(root + "\n") != hash_authorities(root)
    assert hash_authorities(other + root) == hashlib.sha256((other + root).encode()).hexdigest(), "no chain"


# -- settings


def settings_of(role: Any, files: dict[str, str]) -> Settings:
    async def read() -> Settings:
        hardware = Hardware("default", "m", "uid", "uid", "", "", (), Disk())
        guest = GuestOS(hardware, MachineTestbed().offline_host("m"), GuestDelays(), lambda work, name: None)
        for path, text in files.items():
            guest.write(f"/etc/rancher/rke2/{path}", text.encode())
        settings = read_settings(guest, RKE2, role)
        check_settings(guest, settings)
        return settings

    return run_driven(read())


def test_later_files_replace_and_a_plus_appends():
    settings = settings_of(
        "server",
        {
            "config.yaml": "cni: canal\ntls-san: [a]\nnode-label: x=1\n",
            "config.yaml.d/10.yaml": "cni: calico\ntls-san+: [b]\n",
            "config.yaml.d/20.yml": "node-label+: y=2\n",
            "config.yaml.d/30.txt": "nonsense: true\n",
        },
    )

    assert settings.text("cni") == "calico"
    assert settings.list("tls-san") == ("a", "b")
    assert settings.list("node-label") == ("x=1", "y=2")


def test_a_flag_of_servers_in_an_agents_file_is_skipped_with_a_warning():
    settings = settings_of("agent", {"config.yaml": "server: https://a:9345\ntoken: t\ncni: calico\n"})

    assert "cni" not in settings.flags
    assert settings.warnings == ("Unknown flag --cni found in config.yaml, skipping",)


@pytest.mark.parametrize("role", ["server", "agent"])
def test_a_key_that_is_no_flag_is_skipped_with_a_warning(role: str):
    """RKE2 since v1.22.4 (reference/04 §8.5 has it otherwise); cluster-init is a flag of K3s."""
    text = "server: https://a:9345\ntoken: t\ntokn: x\ncluster-init: true\n"

    settings = settings_of(role, {"config.yaml": text})

    assert settings.flags.keys() == {"server", "token"}
    assert settings.warnings == (
        "Unknown flag --tokn found in config.yaml, skipping",
        "Unknown flag --cluster-init found in config.yaml, skipping",
    )


@pytest.mark.parametrize(
    ("role", "text", "words"),
    [
        ("server", "server: https://a:9345", "RKE2_TOKEN is required"),
        ("agent", "token: x", "--server is required"),
        ("server", "disable-etcd: true", "--server is required with --disable-etcd"),
        ("server", "cni: multus", "multus must be used alongside"),
        ("server", "cloud-provider-config: /x", "requires --cloud-provider-name"),
        ("server", "node-ip: ten", "invalid node-ip"),
        ("server", "- a", "cannot unmarshal list"),
        ("server", "a: b: c", "failed to parse /etc/rancher/rke2/config.yaml: yaml"),
    ],
)
def test_settings_that_rke2_refuses(role: str, text: str, words: str):
    with pytest.raises(BadSettings) as refusal:
        settings_of(role, {"config.yaml": text})

    assert words in str(refusal.value)


def test_the_harvester_cloud_provider_switches_the_built_in_controller_off():
    assert (
        settings_of("server", {"config.yaml": "cloud-provider-name: harvester"}).critical()[
            "disable-cloud-controller"
        ]
        == "true"
    )


# -- unit files


@pytest.mark.parametrize(
    ("value", "expanded"),
    [
        ("/etc/default/%N", "/etc/default/rke2-server"),
        ("%n %p %H %l", "rke2-server.service rke2-server one.lab one"),
        ("%t/%E/%S", "/run//etc//var/lib"),
        ("100%% of %%n", "100% of %n"),
        ("%x stays, as a last % does: %", "%x stays, as a last % does: %"),
    ],
)
def test_specifiers_are_expanded_in_one_pass(value: str, expanded: str):
    assert expand_specifiers(value, "rke2-server.service", "one.lab") == expanded


def test_drop_ins_add_and_an_empty_value_clears():
    unit = parse_unit(
        "a.service",
        "[Service]\nExecStart=/bin/a \\\n  --flag\nEnvironment=A=1\n# a comment\n",
        "[Service]\nExecStart=\nExecStart=/bin/b\nEnvironment=B=2\n",
    )

    assert unit.values("Service", "ExecStart") == ("/bin/b",)
    assert unit.values("Service", "Environment") == ("A=1", "B=2")


# -- etcd


def members_of(*names: str) -> EtcdMembers:
    async def make() -> EtcdMembers:
        members = EtcdMembers()
        for place, name in enumerate(names):
            member = EtcdMember(f"{name}-1", name, f"10.0.0.{place}")
            if place:
                members.add_learner(member)
                assert members.promote(member.name)
            else:
                members.add_first(member)
        return members

    return run_driven(make())


def test_one_learner_at_a_time():
    members = members_of("a")
    members.add_learner(EtcdMember("b-1", "b", "10.0.0.2"))

    with pytest.raises(JoinRefused, match="too many learner members"):
        members.add_learner(EtcdMember("c-1", "c", "10.0.0.3"))
    assert members.has_quorum(), "a learner has no vote to miss"


@pytest.mark.parametrize(
    ("size", "down", "holds"), [(1, 1, False), (2, 1, False), (3, 1, True), (3, 2, False), (5, 2, True)]
)
def test_a_majority_of_voters_must_be_up(size: int, down: int, holds: bool):
    names = [f"m{number}" for number in range(size)]
    members = members_of(*names)
    for name in names[:down]:
        members.mark_down(f"{name}-1")

    assert members.has_quorum() is holds


def test_no_member_joins_while_a_voter_is_down():
    members = members_of("a", "b", "c")
    members.mark_down("c-1")

    with pytest.raises(JoinRefused, match="unhealthy cluster"):
        members.add_learner(EtcdMember("d-1", "d", "10.0.0.4"))
    assert members.remove("c-1")
    members.add_learner(EtcdMember("d-1", "d", "10.0.0.4"))


def test_a_node_name_is_used_once():
    with pytest.raises(NotMember, match="duplicate node name"):
        members_of("a", "b").add_learner(EtcdMember("b-2", "b", "10.0.0.9"))


def test_a_removal_that_would_lose_quorum_is_refused():
    assert not members_of("a").remove("a-1")
    members = members_of("a", "b", "c")
    members.mark_down("c-1")
    assert not members.remove("b-1"), "the rest would be one of two"


def test_a_removed_or_moved_member_does_not_return():
    members = members_of("a", "b", "c")
    members.mark_down("c-1")
    with pytest.raises(NotMember, match="address changed"):
        members.rejoin("c-1", "10.0.0.99")
    assert members.remove("c-1")
    with pytest.raises(NotMember, match="permanently removed"):
        members.rejoin("c-1", "10.0.0.2")


# -- kubelet


def flags(**values: tuple[str, ...]) -> Settings:
    return Settings(RKE2, "agent", {key.replace("_", "-"): value for key, value in values.items()})


def test_labels_that_a_kubelet_may_set():
    given = (
        "a=b",
        "rke.cattle.io/machine=uid",
        "topology.kubernetes.io/zone=z",
        "node.kubernetes.io/pool=p",
        "empty=",
    )

    assert parse_labels(flags(node_label=given))["empty"] == ""


@pytest.mark.parametrize(
    "label", ["node-role.kubernetes.io/worker=true", "kubernetes.io/x=y", "a.k8s.io/b=c"]
)
def test_labels_that_a_kubelet_may_not_set(label: str):
    with pytest.raises(BadKubelet, match="unknown 'kubernetes"):
        parse_labels(flags(node_label=(label,)))


def test_taints_with_and_without_value():
    assert parse_taints(flags(node_taint=("a=b:NoSchedule", "c:NoExecute"))) == [
        {"key": "a", "value": "b", "effect": "NoSchedule"},
        {"key": "c", "effect": "NoExecute"},
    ]


@pytest.mark.parametrize(
    "taint", ["a:NoSchedule - b:NoSchedule", "a:Never", ":NoSchedule", "a=b c:NoExecute"]
)
def test_what_is_no_taint(taint: str):
    with pytest.raises(BadKubelet, match="invalid taint spec"):
        parse_taints(flags(node_taint=(taint,)))


@pytest.mark.parametrize(
    ("status", "keys"),
    [
        ("True", {"mine"}),
        ("False", {"mine", "node.kubernetes.io/not-ready"}),
        ("Unknown", {"mine", "node.kubernetes.io/unreachable"}),
    ],
)
def test_readiness_taints_replace_each_other_and_leave_the_rest(status: str, keys: set[str]):
    node: dict[str, Any] = {
        "spec": {
            "taints": [
                {"key": "mine", "effect": "NoSchedule"},
                {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"},
            ]
        },
        "status": {"conditions": [{"type": "Ready", "status": status}]},
    }

    assert taint_by_readiness(node, NOON)

    assert {taint["key"] for taint in node["spec"]["taints"]} == keys
    assert not taint_by_readiness(node, NOON)


# -- charts and pods


def test_chart_values_merge_as_helm_merges():
    values = merge_values(
        default_values("harvester-cloud-provider", "/var/lib/rancher/rke2"),
        {"global": {"cattle": {"clusterName": "mine"}}, "extraArgs": ["--v=5"], "cloudConfig": None},
    )

    assert "cloudConfig" not in values
    assert render_arguments(values) == [
        "harvester-cloud-provider",
        "--cloud-config=/etc/kubernetes/cloud-config",
        "--cluster-name=mine",
        "--v=5",
    ]


CONTROL_PLANE = {"key": "node-role.kubernetes.io/control-plane", "operator": "Equal", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("taint", "fits"),
    [
        ({"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}, True),
        ({"key": "node-role.kubernetes.io/control-plane", "value": "true", "effect": "NoSchedule"}, False),
        ({"key": "node-role.kubernetes.io/control-plane", "effect": "NoExecute"}, False),
        ({"key": "other", "effect": "NoSchedule"}, False),
        ({"key": "other", "effect": "PreferNoSchedule"}, True),
    ],
)
def test_a_toleration_without_value_means_the_empty_value(taint: dict[str, str], fits: bool):
    assert (find_untolerated([CONTROL_PLANE], [taint]) is None) is fits
