"""The tree of `windrow status`, read at 80 columns as a new user would."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from windrow.app.describe.sentences import format_version, format_wait
from windrow.app.describe.views import ClusterView, Wait, read_cluster, read_views
from windrow.cli.output.lines import to_text
from windrow.cli.output.tree import render_tree

NOON = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)


def ago(seconds: float) -> str:
    return (NOON - timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def a_cluster(name: str = "orchard", *, pools: list[dict[str, Any]], **status: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": "fleet-default", "creationTimestamp": ago(72)},
        "spec": {"kubernetesVersion": "v1.34.7+rke2r1", "rkeConfig": {"machinePools": pools}},
        "status": {"version": "v1.34.7+rke2r1", **status},
    }


def a_machine(
    name: str, pool: str, *, cluster: str = "orchard", age: float = 60, **status: Any
) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": "fleet-default", "creationTimestamp": ago(age)},
        "spec": {"clusterName": cluster, "pool": pool, "roles": ["etcd", "control-plane"]},
        "status": status,
    }


def ready(text: str = "True", message: str = "") -> list[dict[str, str]]:
    return [{"type": "Ready", "status": text, "message": message}]


SERVERS = {"name": "servers", "quantity": 3, "etcdRole": True, "controlPlaneRole": True}
WORKERS = {"name": "workers", "quantity": 2, "workerRole": True}


def drawn(clusters: list[dict[str, Any]], machines: list[dict[str, Any]], width: int = 80) -> str:
    return "\n".join(to_text(render_tree(read_views(clusters, machines), NOON, width)))


def test_what_others_wrote_into_an_object_moves_no_cursor_and_ends_no_line():
    cluster = a_cluster(pools=[WORKERS], phase="Refused")
    cluster["spec"]["kubernetesVersion"] = "v1\x1b[31m\n00:00:00 info: forged\x1b]52;c;Zm9v\x07"

    shown = to_text(render_tree(read_views([cluster], []), NOON))

    assert "v1?[31m?00:00:00 info: forged?]52;c;Zm9v? desired" in shown[0]
    assert all(one.isprintable() for one in shown)


def test_a_cluster_that_comes_up_says_at_each_level_what_it_waits_for():
    cluster = a_cluster(
        pools=[SERVERS, WORKERS],
        phase="Provisioning",
        waiting={
            "for": "the Kubernetes API of the first server to answer",
            "since": ago(35),
            "next": "the other servers join",
        },
    )
    machines = [
        a_machine(
            "orchard-servers-x5x7z-9k2lp",
            "servers",
            phase="Running",
            addresses=["10.50.0.11"],
            waiting={"for": "RKE2 to start", "since": ago(35), "next": "its node registers"},
        ),
        a_machine("orchard-servers-x5x7z-b7c2d", "servers", age=10, phase="Planned"),
    ]

    assert drawn([cluster], machines) == (
        "fleet-default/orchard  v1.34.7+rke2r1  provisioning, 72s old\n"
        "│ waits for the Kubernetes API of the first server to answer, since 35s; then\n"
        "│ the other servers join\n"
        "├─ servers  0 of 3 ready  etcd, control plane\n"
        "│  ├─ orchard-servers-x5x7z-9k2lp  running  10.50.0.11\n"
        "│  │    waits for RKE2 to start, since 35s; then its node registers\n"
        "│  └─ orchard-servers-x5x7z-b7c2d  planned\n"
        "└─ workers  0 of 2 ready  worker"
    )


def test_a_cluster_that_is_ready_takes_one_line_for_each_machine():
    cluster = a_cluster(pools=[{**SERVERS, "quantity": 1}], conditions=ready())
    machines = [
        a_machine("orchard-servers-x5x7z-9k2lp", "servers", addresses=["10.50.0.11"], conditions=ready())
    ]

    assert drawn([cluster], machines) == (
        "fleet-default/orchard  v1.34.7+rke2r1  ready, 72s old\n"
        "└─ servers  1 of 1 ready  etcd, control plane\n"
        "   └─ orchard-servers-x5x7z-9k2lp  ready  10.50.0.11"
    )


def test_what_is_wrong_is_said_once_though_condition_and_wait_both_carry_it():
    cluster = a_cluster(
        pools=[],
        waiting={"for": "Harvester to answer", "since": ago(5)},
        conditions=ready("False", "waiting for Harvester to answer"),
    )

    assert drawn([cluster], []).count("Harvester to answer") == 1


def test_a_refusal_is_told_in_the_words_of_the_condition():
    cluster = a_cluster(
        pools=[],
        phase="Refused",
        conditions=ready("False", "image default/leap is an ISO; name a cloud image instead"),
    )

    assert "  image default/leap is an ISO\n  → name a cloud image instead" in drawn([cluster], [])


def test_a_refusal_with_several_reasons_names_each_once():
    cluster = a_cluster(
        pools=[],
        phase="Refused",
        waiting={"for": "you to change this: no etcd; add one (and 1 more)"},
        conditions=ready("False", "no etcd; add one; no credential; name one"),
    )

    text = drawn([cluster], [])

    assert text.count("no etcd") == 1
    assert "no credential" in text


def test_repair_that_is_held_back_is_said_with_its_reason():
    held = {
        "type": "RemediationAllowed",
        "status": "False",
        "message": "orchard-a: 3 of 5 machines are unhealthy",
    }

    assert "  remediation is paused: orchard-a: 3 of 5" in drawn(
        [a_cluster(pools=[], conditions=[*ready(), held])], []
    )


def test_warnings_are_shown_also_when_the_cluster_is_ready():
    cluster = a_cluster(
        pools=[], conditions=ready(), warnings=["two etcd members survive no loss; use one or three"]
    )

    assert "  warning: two etcd members survive no loss; use one or three" in drawn([cluster], [])


def test_a_failed_update_is_marked_at_its_machine_and_its_command_can_be_copied():
    command = "kubectl -n fleet-default annotate machine orchard-servers-x5x7z-9k2lp windrow.io/retry-update="
    said = "update of Machine orchard-servers-x5x7z-9k2lp failed in step Apply: no such release"
    cluster = a_cluster(
        pools=[SERVERS],
        conditions=ready(),
        warnings=[f"{said}; set another version; or mend it, then have it tried again: {command}"],
    )
    failed = {"type": "Updating", "status": "False", "reason": "UpdateFailed", "message": "no"}
    machine = a_machine("orchard-servers-x5x7z-9k2lp", "servers", conditions=[*ready(), failed])

    lines = drawn([cluster], [machine]).splitlines()

    assert "   └─ orchard-servers-x5x7z-9k2lp  ready  update failed" in lines
    assert f"│   {command}" in lines
    assert max(len(one) for one in lines if command not in one) <= 80


def test_a_pool_that_left_the_manifest_stays_in_sight_until_its_machines_are_gone():
    leaving = a_machine("orchard-old-x5x7z-9k2lp", "old", conditions=ready())
    leaving["metadata"]["deletionTimestamp"] = ago(3)

    text = drawn([a_cluster(pools=[])], [leaving])

    assert "old  no machines wanted" in text
    assert "orchard-old-x5x7z-9k2lp  deleting" in text


def test_machines_of_a_cluster_with_the_same_name_elsewhere_are_not_mixed_in():
    foreign = a_machine("orchard-servers-x5x7z-9k2lp", "servers")
    foreign["metadata"]["namespace"] = "elsewhere"

    assert "9k2lp" not in drawn([a_cluster(pools=[SERVERS])], [foreign])


def test_no_line_is_wider_than_asked_for_even_with_the_longest_names():
    name = "a-cluster-with-quite-a-long-name-servers-x5x7z-9k2lp-and-more-63"
    wait = {"for": "the guest agent to report an address " * 4, "since": ago(4000), "next": "it joins " * 9}
    cluster = a_cluster(pools=[SERVERS], waiting=wait)

    text = drawn(
        [cluster], [a_machine(name, "servers", phase="Running", addresses=["10.50.100.111"], waiting=wait)]
    )

    assert max(len(line) for line in text.splitlines()) <= 80


def test_an_object_without_status_is_drawn_not_refused():
    bare = {"metadata": {"name": "bare", "namespace": "default"}, "spec": {}}

    assert drawn([bare], []) == "default/bare  new"


def test_a_wait_without_a_date_or_a_next_step_is_still_a_sentence():
    assert format_wait(Wait("an address"), NOON) == "waits for an address"


@pytest.mark.parametrize(
    ("running", "desired", "shown"),
    [
        ("v1.34.7+rke2r1", "v1.34.7+rke2r1", "v1.34.7+rke2r1"),
        ("v1.34.7+rke2r1", "v1.35.1+rke2r1", "v1.34.7+rke2r1, v1.35.1+rke2r1 desired"),
        ("", "v1.35.1+rke2r1", "v1.35.1+rke2r1 desired"),
        ("", "", ""),
    ],
)
def test_the_version_that_runs_is_told_from_the_desired_one(running: str, desired: str, shown: str):
    assert format_version(ClusterView("a", "b", version=running, desired_version=desired)) == shown


@pytest.mark.parametrize(
    ("status", "state", "tone"),
    [
        ({}, "pending", "busy"),
        ({"phase": "Joining"}, "joining", "busy"),
        ({"phase": "Missing"}, "missing", "bad"),
        ({"phase": "NotReady"}, "not ready", "bad"),
    ],
)
def test_a_machines_state_is_its_phase(status: dict[str, Any], state: str, tone: str):
    machine = a_machine("orchard-servers-x5x7z-9k2lp", "servers", **status)

    lines = render_tree(read_views([a_cluster(pools=[SERVERS])], [machine]), NOON, 80)

    spans = [span for one in lines for span in one.spans if span.text == state]
    assert [span.tone for span in spans] == [tone]


def test_a_reason_that_all_machines_share_is_printed_once():
    reason = "credential Secret a/b: https://127.0.0.1:6443 cannot be reached: connection refused (111)"
    cluster = a_cluster(
        pools=[WORKERS], phase="Running", waiting={"for": f"Harvester to be reachable: {reason}"}
    )
    names = [f"orchard-workers-{end}" for end in ("a1", "b2")]
    waits = [f"Harvester to report the state of VirtualMachine default/{name} ({reason})" for name in names]
    machines = [
        a_machine(name, "workers", phase="Unknown", waiting={"for": wait, "next": "health check"})
        for name, wait in zip(names, waits, strict=True)
    ]

    text = " ".join(drawn([cluster], machines, width=400).split())

    assert text.count("connection refused") == 1
    for name in names:
        assert (
            f"waits for Harvester to report the state of VirtualMachine default/{name}; then health check"
            in text
        )


def test_a_reason_that_is_part_of_the_clusters_is_printed():
    cluster = a_cluster(pools=[WORKERS], phase="Running", waiting={"for": "Machine a to join (10.52.0.11)"})
    machine = a_machine("b", "workers", phase="Joining", waiting={"for": "Machine b to join (10.52.0.1)"})

    assert "Machine b to join (10.52.0.1)" in drawn([cluster], [machine], width=200)


@pytest.mark.parametrize(("ready", "shown"), [("False", True), ("True", False)])
def test_what_the_preflight_warned_of_is_shown_until_the_cluster_is_ready(ready: str, shown: bool) -> None:
    warned = "'cnii' is no key of RKE2, which skips it; did you mean 'cni'?"
    conditions = [
        {"type": "PreflightPassed", "status": "True", "reason": "PassedWithWarnings", "message": warned},
        {"type": "Ready", "status": ready, "reason": "InProgress", "message": ""},
    ]
    metadata = {"name": "orchard", "namespace": "fleet-default"}
    raw = {"metadata": metadata, "spec": {}, "status": {"conditions": conditions}}

    assert read_cluster(raw, []).warnings == ((warned,) if shown else ())


def test_each_thing_that_the_preflight_warned_of_has_a_line_of_its_own() -> None:
    cluster = a_cluster(
        pools=[WORKERS],
        conditions=[
            *ready("False", "x"),
            {
                "type": "PreflightPassed",
                "status": "True",
                "reason": "PassedWithWarnings",
                "message": "the first; mend it\nthe second; mend that",
            },
        ],
    )

    shown = [one.strip(" │") for one in drawn([cluster], [], width=200).splitlines() if "warning" in one]

    assert shown == ["warning: the first; mend it", "warning: the second; mend that"]


def test_a_reason_that_the_cluster_gives_is_not_repeated_for_remediation_and_for_the_machine():
    why = "replacement skipped: last etcd member; restore VirtualMachine default/s1 on Harvester"
    cluster = a_cluster(
        pools=[SERVERS],
        waiting={"for": f"Machine s1 to recover ({why}) (and 2 more)", "since": ago(5)},
        conditions=[
            *ready("False", "x"),
            {"type": "RemediationAllowed", "status": "False", "message": f"s1: {why}"},
        ],
    )
    machines = [
        a_machine("s1", "servers", phase="Missing", waiting={"for": f"Machine s1 to recover ({why})"})
    ]

    text = drawn([cluster], machines)

    assert text.count("last etcd member") == 1
    assert "remediation is paused: s1\n" in text
    assert text.endswith("waits for Machine s1 to recover")


def test_a_machine_that_does_not_run_the_desired_version_yet_shows_its_own():
    cluster = a_cluster(pools=[{"name": "servers", "quantity": 2}])
    machines = [
        a_machine("m-1", "servers", version="v1.34.6+rke2r1"),
        a_machine("m-2", "servers", version="v1.34.7+rke2r1"),
    ]

    shown = to_text(render_tree(read_views([cluster], machines), NOON))

    assert [text.endswith("  v1.34.6+rke2r1") for text in shown if " m-" in text] == [True, False]
