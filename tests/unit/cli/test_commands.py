"""Each command against a real management API, over sockets."""

from __future__ import annotations

import base64
import io
import json
import signal
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.unit.cli.conftest import MANIFEST

from windrow.apiserver.loopback import LoopbackClient
from windrow.app import check
from windrow.cli import exit_codes, main, wait
from windrow.cli.context import CliContext
from windrow.clusters.api.kinds import CLUSTER, HARVESTER_CONFIG, MACHINE
from windrow.clusters.plan import actions
from windrow.clusters.plan.operations import actions as operation_actions
from windrow.kubernetes.kubeconfig import render_kubeconfig
from windrow.kubernetes.objects import new_object, uid_of
from windrow.kubernetes.requests import Reply
from windrow.kubernetes.resources import CRD, EVENT, NAMESPACE, SECRET

Windrow = Callable[..., Any]
Manager = Any

ORCHARD = CLUSTER.ref("orchard", "fleet-default")


@pytest.fixture
def orchard(windrow: Windrow, manager: Manager) -> Manager:
    """A management API in which the cluster orchard is asked for."""
    assert windrow("apply", "-f", "cluster.yaml").code == exit_codes.OK
    return manager


def report(status: dict[str, Any]) -> Callable[[LoopbackClient], Any]:
    """Report this status of orchard, as the manager does."""
    return lambda api: api.patch(ORCHARD, {"status": status}, subresource="status")


def enlist(name: str, pool: str, **status: Any) -> Callable[[LoopbackClient], Any]:
    async def work(api: LoopbackClient) -> None:
        spec = {"clusterName": "orchard", "clusterUID": "u", "pool": pool, "roles": ["worker"], "options": {}}
        spec |= {"credential": "fleet-default:cc", "version": "v1.34.7+rke2r1"}
        metadata = {"name": name, "namespace": "fleet-default"}
        await api.create(
            MACHINE,
            {"apiVersion": "windrow.io/v1alpha1", "kind": "Machine", "metadata": metadata, "spec": spec},
        )
        await api.patch(MACHINE.ref(name, "fleet-default"), {"status": status}, subresource="status")

    return work


READY = [{"type": "Ready", "status": "True", "reason": "Ready", "message": ""}]


# -- apply -------------------------------------------------------------------------------------------------------


def test_apply_makes_objects_in_the_order_that_they_need_each_other(windrow: Windrow, manager: Manager):
    answer = windrow("apply", "-f", "cluster.yaml")

    assert answer.code == exit_codes.OK
    assert answer.out.splitlines() == [
        "Namespace fleet-default created",
        "HarvesterConfig fleet-default/nc-orchard created",
        "Cluster fleet-default/orchard created",
    ]
    assert "windrow status fleet-default/orchard" in answer.err


KEY = "harvestercredentialConfig-kubeconfigContent"


def a_credential(name: str, kubeconfig: str = "") -> dict[str, Any]:
    metadata = {"name": name, "namespace": "cattle-global-data"}
    annotations = {"windrow.io/allowed-namespaces": "fleet-default"}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {**metadata, "annotations": annotations},
        "stringData": {KEY: kubeconfig},
    }


@pytest.mark.parametrize(
    ("names", "cure"),
    [
        ((), "create that Secret with a Harvester kubeconfig, or name another"),
        (("cc-harvster",), "write cattle-global-data:cc-harvster"),
        (
            ("site-1", "site-2", "x-3", "y-4"),
            "or name another; there are cattle-global-data:site-1, cattle-global-data:site-2, cattle-global-data:x-3 and 1 more",
        ),
    ],
)
@pytest.mark.parametrize("verb", ["check", "apply"])
def test_a_credential_that_does_not_exist_is_told_with_those_that_there_are(
    windrow: Windrow, manager: Manager, verb: str, names: tuple[str, ...], cure: str
):
    """`apply` goes on: the Cluster waits for it."""

    async def create(api: LoopbackClient) -> None:
        await api.create(NAMESPACE, new_object(NAMESPACE, "cattle-global-data"))
        await api.create(SECRET, new_object(SECRET, "other", "cattle-global-data"))
        for name in names:
            await api.create(SECRET, a_credential(name, "x"))

    manager.do(create)

    answer = windrow(verb, "-f", "cluster.yaml")

    assert answer.code == (exit_codes.OK if verb == "apply" else exit_codes.REFUSED)
    told = " ".join((answer.out + answer.err).split())
    severity = "warning" if verb == "apply" else "error"
    assert f"{severity} credential Secret cattle-global-data/cc-harvester does not exist → " in told
    assert cure in told


@pytest.mark.parametrize("given", ["in the manifest", "in the management API"])
@pytest.mark.parametrize("verb", ["check", "apply"])
def test_the_harvester_of_the_credential_is_asked(
    windrow: Windrow, manager: Manager, tmp_path: Path, verb: str, given: str
):
    """Here a Kubernetes that is no Harvester."""
    credential = a_credential("cc-harvester", render_kubeconfig(manager.access, "windrow"))
    (tmp_path / "credential.yaml").write_text(json.dumps(credential))

    async def create(api: LoopbackClient) -> None:
        await api.create(NAMESPACE, new_object(NAMESPACE, "cattle-global-data"))
        if given == "in the management API":
            await api.create(SECRET, credential)

    manager.do(create)

    files = ("-f", "credential.yaml") if given == "in the manifest" else ()
    answer = windrow(verb, *files, "-f", "cluster.yaml")

    assert answer.code == (exit_codes.OK if verb == "apply" else exit_codes.REFUSED)
    assert "does not have the kinds of Harvester" in " ".join((answer.out + answer.err).split())


def test_apply_does_not_wait_for_a_harvester_that_does_not_answer(
    windrow: Windrow, manager: Manager, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(check, "PATIENCE_S", 0)

    answer = windrow("apply", "-f", "cluster.yaml")

    assert answer.code == exit_codes.OK
    assert "Harvester was not asked: it has not answered within 0 s. The cluster manager does" in answer.err


def test_applying_again_changes_nothing(windrow: Windrow, orchard: Manager):
    answer = windrow("apply", "-f", "cluster.yaml")

    assert [line.split()[-1] for line in answer.out.splitlines()] == ["unchanged"] * 3


def test_applying_what_kubectl_applied_takes_over_what_the_manifest_names(
    windrow: Windrow, orchard: Manager, tmp_path: Path
):
    (tmp_path / "cluster.yaml").write_text(
        (tmp_path / "cluster.yaml").read_text().replace("quantity: 2", "quantity: 4")
    )

    assert "Cluster fleet-default/orchard changed" in windrow("apply", "-f", "cluster.yaml").out
    after = orchard.do(lambda api: api.get(ORCHARD))
    assert [pool["quantity"] for pool in after["spec"]["rkeConfig"]["machinePools"]] == [3, 4]


def test_apply_waits_until_the_cluster_is_ready_and_says_what_it_waits_for(
    windrow: Windrow, orchard: Manager
):
    orchard.do(report({"waiting": {"for": "the first server"}, "conditions": READY}))

    answer = windrow("apply", "-f", "cluster.yaml", "--wait")

    assert answer.code == exit_codes.OK
    assert "Cluster fleet-default/orchard is ready" in answer.out
    assert "waits for the first server" in answer.err


@pytest.mark.parametrize("timeout", ["1s", "1"])
def test_a_timeout_means_to_wait_and_a_bare_number_means_seconds(
    windrow: Windrow, orchard: Manager, timeout: str
):
    assert windrow("apply", "-f", "cluster.yaml", "--timeout", timeout).code == exit_codes.TIMED_OUT
    assert windrow("scale", "orchard", "workers=1", "--timeout", timeout).code == exit_codes.TIMED_OUT


def test_a_status_about_an_older_manifest_does_not_count_as_ready(windrow: Windrow, orchard: Manager):
    orchard.do(report({"observedGeneration": 0, "conditions": READY}))

    assert windrow("apply", "-f", "cluster.yaml", "--wait", "--timeout", "1s").code == exit_codes.TIMED_OUT


def test_apply_does_not_wait_for_what_was_refused(windrow: Windrow, orchard: Manager):
    no = {
        "type": "Ready",
        "status": "False",
        "reason": "Refused",
        "message": "the image is an ISO; name another",
    }
    orchard.do(report({"phase": "Refused", "conditions": [no]}))

    answer = windrow("apply", "-f", "cluster.yaml", "--wait")

    assert answer.code == exit_codes.REFUSED
    assert "ISO" in answer.err


def test_a_refused_cluster_shows_each_message_with_its_hint(windrow: Windrow, orchard: Manager):
    message = "the image is an ISO; name another; or convert it\npool a has no role; give it one"
    no = {"type": "Ready", "status": "False", "reason": "Refused", "message": message}
    orchard.do(report({"phase": "Refused", "waiting": {"for": "the image is an ISO"}, "conditions": [no]}))

    drawn = [line.lstrip("│ ") for line in windrow("status").out.splitlines()]
    told = windrow("apply", "-f", "cluster.yaml", "--wait").err.splitlines()

    assert drawn[1:5] == [
        "the image is an ISO",
        "→ name another; or convert it",
        "pool a has no role",
        "→ give it one",
    ]
    assert told[-4:] == [
        "Cluster fleet-default/orchard is refused: the image is an ISO",
        "→ Name another; or convert it",
        "Cluster fleet-default/orchard is refused: pool a has no role",
        "→ Give it one",
    ]


RUNNING: dict[str, Any] = {"version": "v1.34.7+rke2r1", "initialized": True, "phase": "Ready", "ready": True}
NOT_ACCEPTED = {
    "type": "Accepted",
    "status": "False",
    "reason": "Invalid",
    "message": "spec.kubernetesVersion is 'banana'; write a version",
}


def test_a_refused_change_of_a_cluster_that_is_ready_is_told_by_status_and_by_waiting(
    windrow: Windrow, orchard: Manager
):
    orchard.do(report({**RUNNING, "conditions": [*READY, NOT_ACCEPTED]}))

    drawn = [line.lstrip("│ ") for line in windrow("status").out.splitlines()]
    answer = windrow("apply", "-f", "cluster.yaml", "--wait")

    assert drawn[0].split("  ")[2].startswith("ready")
    assert drawn[1:4] == [
        "the manifest is refused; the cluster stays as it was:",
        "spec.kubernetesVersion is 'banana'",
        "→ write a version",
    ]
    assert answer.code == exit_codes.REFUSED
    assert "Cluster fleet-default/orchard is refused: spec.kubernetesVersion is 'banana'" in answer.err


@pytest.mark.parametrize(
    ("version", "told"),
    [
        ("v1.34.7+k3s1", "asks for k3s, and the cluster runs v1.34.7+rke2r1"),
        ("v1.33.7+rke2r1", "lower than v1.34.7+rke2r1, which the cluster runs"),
    ],
)
def test_what_a_cluster_that_runs_cannot_become_is_refused_before_anything_is_sent(
    windrow: Windrow, orchard: Manager, tmp_path: Path, version: str, told: str
):
    orchard.do(report({**RUNNING, "conditions": READY}))
    text = (tmp_path / "cluster.yaml").read_text()
    (tmp_path / "cluster.yaml").write_text(text.replace("v1.34.7+rke2r1", version))

    applied = windrow("apply", "-f", "cluster.yaml")
    checked = windrow("check", "-f", "cluster.yaml")

    assert (applied.code, checked.code) == (exit_codes.REFUSED, exit_codes.REFUSED)
    assert told in applied.err
    assert told in " ".join(line.strip("│ ") for line in checked.out.splitlines())
    assert orchard.do(lambda api: api.get(ORCHARD))["spec"]["kubernetesVersion"] == "v1.34.7+rke2r1"


def test_waiting_ends_at_the_time_that_was_given(windrow: Windrow, orchard: Manager):
    answer = windrow("apply", "-f", "cluster.yaml", "--wait", "--timeout", "1s")

    assert answer.code == exit_codes.TIMED_OUT
    told = [one for one in answer.err.strip().splitlines() if not one.startswith("warning")]
    assert len(told) == 2


def test_an_object_that_the_schema_forbids_is_refused(windrow: Windrow, orchard: Manager, tmp_path: Path):
    (tmp_path / "bad.yaml").write_text(
        (tmp_path / "cluster.yaml").read_text().replace("quantity: 2", "quantity: two")
    )

    answer = windrow("apply", "-f", "bad.yaml")

    assert answer.code == exit_codes.REFUSED
    assert "quantity" in answer.err


def test_apply_changes_nothing_when_the_manifest_is_wrong_in_itself(
    windrow: Windrow, manager: Manager, tmp_path: Path
):
    text = (tmp_path / "cluster.yaml").read_text()
    (tmp_path / "bad.yaml").write_text(text.replace("quantity: 2", "quantity: two").replace('"4"', '"four"'))

    answer = windrow("apply", "-f", "bad.yaml")

    assert answer.code == exit_codes.REFUSED
    assert answer.out == ""
    assert "quantity is 'two'" in answer.err
    assert "HarvesterConfig nc-orchard (pools servers, workers): cpuCount is 'four'" in " ".join(
        answer.err.split()
    )
    assert manager.do(lambda api: api.list(HARVESTER_CONFIG)) == []


def test_a_refusal_after_something_was_done_does_not_say_that_nothing_was(windrow: Windrow, manager: Manager):
    answer = windrow(
        "apply",
        "-f",
        "-",
        stdin="apiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n---\n"
        "apiVersion: v1\nkind: Secret\nmetadata: {name: Not_A_Name, namespace: a}\n",
    )

    assert answer.code == exit_codes.FAILED
    assert "Namespace a created" in answer.out
    assert "The objects listed above were applied" in answer.err


def test_apply_goes_on_past_warnings(windrow: Windrow, manager: Manager, tmp_path: Path):
    text = (tmp_path / "cluster.yaml").read_text()
    (tmp_path / "odd.yaml").write_text(
        text.replace("  kubernetesVersion", "  enableNetworkPolicy: true\n  kubernetesVersion")
    )

    answer = windrow("apply", "-f", "odd.yaml")

    assert answer.code == exit_codes.OK
    assert "spec.enableNetworkPolicy has no effect" in " ".join(answer.err.split())
    assert "Cluster fleet-default/orchard created" in answer.out


def test_apply_refuses_unknown_fields(windrow: Windrow, manager: Manager, tmp_path: Path):
    text = (tmp_path / "cluster.yaml").read_text()
    (tmp_path / "odd.yaml").write_text(text.replace("quantity: 2", "quantitty: 2"))

    answer = windrow("apply", "-f", "odd.yaml")

    assert answer.code == exit_codes.REFUSED
    assert "machinePools[1].quantitty is not a field of Cluster" in " ".join(answer.err.split())
    assert "did you mean quantity?" in answer.err
    assert "created" not in answer.out


def test_apply_knows_the_configs_that_are_there_already(windrow: Windrow, orchard: Manager, tmp_path: Path):
    _, cluster, _ = (tmp_path / "cluster.yaml").read_text().split("---")
    (tmp_path / "alone.yaml").write_text(cluster.replace("quantity: 2", "quantity: 4"))

    assert windrow("apply", "-f", "alone.yaml").code == exit_codes.OK


def test_apply_refuses_a_key_that_is_written_twice(windrow: Windrow, manager: Manager, tmp_path: Path):
    (tmp_path / "odd.yaml").write_text(MANIFEST.replace("quantity: 2", "quantity: 2\n        quantity: 5"))

    answer = windrow("apply", "-f", "odd.yaml")

    assert answer.code == exit_codes.REFUSED
    assert "has the key 'quantity', which its mapping has in line" in answer.err
    assert answer.out == ""


@pytest.mark.parametrize("command", ["apply", "check"])
def test_what_a_change_does_to_machines_that_exist_is_told(
    windrow: Windrow, orchard: Manager, tmp_path: Path, command: str
):
    async def work(api: LoopbackClient) -> None:
        uid = (await api.get(ORCHARD))["metadata"]["uid"]
        spec = {"clusterName": "orchard", "clusterUID": uid, "roles": ["worker"], "options": {}}
        spec |= {"credential": "fleet-default:cc", "version": "v1.34.7+rke2r1"}
        for name, pool, owner in [("a", "workers", uid), ("b", "workers", uid), ("c", "workers", "other")]:
            raw = new_object(MACHINE, name, "fleet-default", spec=spec | {"pool": pool, "clusterUID": owner})
            await api.create(MACHINE, raw)

    orchard.do(work)
    text = (tmp_path / "cluster.yaml").read_text()
    for name, old, new in [
        ("renamed", "name: workers", "name: agents"),
        ("tainted", "name: workers", "name: workers\n        taints: [{key: a, effect: NoSchedule}]"),
    ]:
        assert old in text
        (tmp_path / f"{name}.yaml").write_text(text.replace(old, new))

    told = {name: windrow(command, "-f", f"{name}.yaml") for name in ("tainted", "renamed")}

    shown = {name: " ".join(f"{one.out} {one.err}".split()) for name, one in told.items()}
    assert (
        "warning taints of pool workers changed: the Nodes of its 2 machines keep theirs" in shown["tainted"]
    )
    assert "will be deleted" not in shown["tainted"]
    assert (
        "warning 2 machines of pool workers will be deleted: the manifest has no pool of this name"
        in shown["renamed"]
    )


@pytest.mark.parametrize("command", ["apply", "check"])
def test_a_change_of_machines_that_exist_is_told_as_status_tells_it(
    windrow: Windrow, orchard: Manager, command: str
):
    async def work(api: LoopbackClient) -> None:
        uid = (await api.get(ORCHARD))["metadata"]["uid"]
        spec = {"clusterName": "orchard", "clusterUID": uid, "roles": ["worker"], "options": {}}
        spec |= {"credential": "fleet-default:cc", "version": "v1.33.1+rke2r1", "pool": "workers"}
        await api.create(MACHINE, new_object(MACHINE, "a", "fleet-default", spec=spec))

    orchard.do(work)
    orchard.do(report({"version": "v1.33.1+rke2r1"}))

    answer = windrow(command, "-f", "cluster.yaml")

    shown = " ".join(f"{answer.out} {answer.err}".split())
    assert "warning replace of 1 machine of pool workers: " in shown
    assert "spec.kubernetesVersion v1.33.1+rke2r1 → v1.34.7+rke2r1" in shown


# -- check -------------------------------------------------------------------------------------------------------


def test_check_tells_what_is_wrong_with_a_kubeconfig_by_the_name_of_its_file(
    windrow: Windrow, tmp_path: Path
):
    (tmp_path / "cluster.yaml").write_text(MANIFEST)
    (tmp_path / "README.md").write_text("# Windrow\n\n`code: [`\n")

    asked = windrow("check", "-f", "cluster.yaml", "--harvester", "README.md")
    shown = windrow("status", env={"WINDROW_KUBECONFIG": str(tmp_path / "README.md")})

    for answer in (asked, shown):
        assert answer.code == exit_codes.UNREACHABLE
        assert "README.md" in answer.err
        assert "<unicode string>" not in answer.err


@pytest.mark.parametrize("by_variable", [True, False])
def test_check_fails_with_a_kubeconfig_that_cannot_be_read_as_status_does(
    windrow: Windrow, tmp_path: Path, by_variable: bool
):
    (tmp_path / "cluster.yaml").write_text(MANIFEST)
    bad = tmp_path / "bad.kc"
    bad.write_text("garbage: [\n")
    env = {"WINDROW_KUBECONFIG": str(bad)} if by_variable else {}
    named = () if by_variable else ("--kubeconfig", str(bad))

    checked = windrow("check", "-f", "cluster.yaml", *named, env=env)
    shown = windrow("status", *named, env=env)

    assert checked.code == exit_codes.UNREACHABLE
    assert "bad.kc: the kubeconfig is not YAML" in checked.err
    assert (checked.code, checked.err, checked.out) == (shown.code, shown.err, "")


def test_the_demo_refuses_a_misspelt_field_at_once_in_the_words_of_check(windrow: Windrow, tmp_path: Path):
    (tmp_path / "odd.yaml").write_text(MANIFEST.replace("quantity: 2", "quantitty: 2"))

    answer = windrow("demo", "-f", "odd.yaml")

    assert answer.code == exit_codes.REFUSED
    assert "machinePools[1].quantitty is not a field of Cluster → did you mean quantity?" in answer.err
    assert answer.err_lines[-1] == "Nothing was started."
    assert answer.out == ""


def test_check_without_a_harvester_says_how_to_name_one(windrow: Windrow, tmp_path: Path):
    (tmp_path / "cluster.yaml").write_text(MANIFEST)

    answer = windrow("check", "-f", "cluster.yaml")

    assert answer.code == exit_codes.OK
    assert "→ Add --harvester FILE, or start windrow serve." in answer.out


def test_check_reports_kinds_that_the_management_api_does_not_have(windrow: Windrow, tmp_path: Path):
    strange = "---\napiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\n"
    (tmp_path / "cluster.yaml").write_text(MANIFEST + strange)

    answer = windrow("check", "-f", "cluster.yaml")

    assert answer.code == exit_codes.REFUSED
    assert "'web' is of kind Deployment (apps/v1), which the management API does not have" in answer.err
    assert "fleet-default/orchard  no problem" in answer.out


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("kind: Cluster\n", "kind: cluster\n", "Write kind: Cluster."),
        ("kind: Cluster\n", "kind: Clusters\n", "Write kind: Cluster."),
        (
            "provisioning.cattle.io/v1",
            "provisioning.cattle.io/v2",
            "Write apiVersion: provisioning.cattle.io/v1.",
        ),
        (
            "apiVersion: provisioning.cattle.io/v1\nkind: Cluster\n",
            "apiVersion: v1\nkind: cluster\n",
            "Write apiVersion: provisioning.cattle.io/v1 and kind: Cluster.",
        ),
    ],
)
@pytest.mark.parametrize("verb", ["check", "apply"])
def test_a_kind_or_version_that_is_misspelt_is_answered_with_the_right_one(
    windrow: Windrow, tmp_path: Path, verb: str, old: str, new: str, told: str
):
    assert old in MANIFEST
    (tmp_path / "cluster.yaml").write_text(MANIFEST.replace(old, new, 1))

    answer = windrow(verb, "-f", "cluster.yaml")

    assert answer.code == exit_codes.REFUSED
    assert answer.err.splitlines()[-1] == f"→ {told}"
    assert "'orchard' is of kind " in answer.err


@pytest.mark.parametrize("verb", ["check", "apply"])
def test_a_machine_config_of_a_misspelt_kind_is_refused_with_the_kind_that_exists(
    windrow: Windrow, manager: Manager, tmp_path: Path, verb: str
):
    misspelt = MANIFEST.replace("kind: HarvesterConfig\nmetadata", "kind: HarvestrConfig\nmetadata")
    (tmp_path / "cluster.yaml").write_text(misspelt)

    answer = windrow(verb, "-f", "cluster.yaml")

    assert answer.code == exit_codes.REFUSED
    shown = " ".join((answer.out + answer.err).split())
    assert "kind is HarvestrConfig, and no NodeDriver provides that kind → write HarvesterConfig, or" in shown


@pytest.mark.parametrize("verb", ["check", "apply"])
def test_a_namespace_that_does_not_exist_is_told_once_with_how_to_make_it(
    windrow: Windrow, manager: Manager, tmp_path: Path, verb: str
):
    [_, *objects] = MANIFEST.split("---\n")
    secret = "apiVersion: v1\nkind: Secret\nmetadata: {name: s, namespace: fleet-default}\n"
    (tmp_path / "cluster.yaml").write_text("---\n".join([*objects, secret]))

    answer = windrow(verb, "-f", "cluster.yaml")

    assert answer.code == exit_codes.REFUSED
    shown = " ".join((answer.out + answer.err).split())
    assert "Namespace fleet-default does not exist in the management API" in shown
    assert "kubectl create namespace fleet-default" in shown
    assert "does not allow its use" not in shown
    assert shown.count("Namespace fleet-default does not exist") == (2 if verb == "check" else 1)


@pytest.mark.parametrize("verb", ["check", "apply"])
def test_a_namespace_that_the_manifest_does_not_name_is_refused_as_kubectl_does(
    windrow: Windrow, manager: Manager, verb: str
):
    answer = windrow(verb, "-f", "cluster.yaml", "-n", "other")

    assert answer.code == exit_codes.REFUSED
    shown = " ".join(answer.err.split())
    assert "Cluster orchard is of namespace fleet-default, and -n is other." in shown
    assert "HarvesterConfig nc-orchard is of namespace fleet-default" in shown
    assert "Leave out -n, or correct metadata.namespace of Cluster orchard." in shown
    assert answer.out == ""


def test_every_file_that_cannot_be_read_is_told(windrow: Windrow, tmp_path: Path):
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "broken.yaml").write_text("a: [")

    answer = windrow("check", "-f", "nope.yaml", "binary.yaml", "broken.yaml")

    assert answer.code == exit_codes.REFUSED
    assert all(name in answer.err for name in ("nope.yaml", "binary.yaml", "broken.yaml"))
    assert "defect" not in answer.err


def test_a_namespace_without_clusters_is_told_by_its_name(windrow: Windrow, orchard: Manager):
    answer = windrow("status", "-n", "nope")

    assert answer.out == "No clusters in namespace nope. All namespaces: windrow status\n"


# -- status ------------------------------------------------------------------------------------------------------


def test_status_draws_the_tree_with_what_each_level_waits_for(windrow: Windrow, orchard: Manager):
    orchard.do(
        report({"phase": "Provisioning", "waiting": {"for": "the first server", "next": "others join"}})
    )
    orchard.do(enlist("orchard-workers-a-b", "workers", phase="Running", addresses=["10.0.0.9"]))

    answer = windrow("status")

    assert "fleet-default/orchard  v1.34.7+rke2r1 desired  provisioning" in answer.out
    assert "│ waits for the first server; then others join" in answer.out
    assert "   └─ orchard-workers-a-b  running  10.0.0.9" in answer.out


def test_status_for_programs_is_a_list_of_objects_or_the_one_that_is_named(
    windrow: Windrow, orchard: Manager
):
    orchard.do(report({"conditions": READY}))

    one = json.loads(windrow("status", "orchard", "-o", "json").out)
    every = json.loads(windrow("status", "-o", "json").out)

    assert (one["kind"], one["metadata"]["name"]) == ("Cluster", "orchard")
    assert one["status"]["conditions"][0]["type"] == "Ready"
    assert (every["kind"], every["items"]) == ("List", [one])


def test_status_without_clusters_says_how_to_make_one(windrow: Windrow, manager: Manager):
    assert "windrow apply" in windrow("status").out


def test_a_name_that_is_not_there_is_not_found(windrow: Windrow, orchard: Manager):
    answer = windrow("status", "orchid")

    assert answer.code == exit_codes.NOT_FOUND
    assert "'orchid'" in answer.err


def test_a_name_that_is_there_twice_must_be_told_apart(windrow: Windrow, orchard: Manager, tmp_path: Path):
    twin = (tmp_path / "cluster.yaml").read_text().replace("fleet-default", "elsewhere")
    assert windrow("apply", "-f", "-", stdin=twin).code == exit_codes.OK

    answer = windrow("status", "orchard")

    assert answer.code == exit_codes.USAGE
    assert "elsewhere/orchard, fleet-default/orchard" in answer.err
    assert windrow("status", "elsewhere/orchard").code == exit_codes.OK
    assert "fleet-default" not in windrow("status", "-n", "elsewhere").out


# -- scale, kubeconfig, delete, machine --------------------------------------------------------------------------


def test_scale_sets_the_quantity_and_says_what_it_was(windrow: Windrow, orchard: Manager):
    answer = windrow("scale", "orchard", "workers=5", "servers=3")

    assert answer.out.splitlines() == ["servers: 3, as before", "workers: 2 → 5"]
    after = orchard.do(lambda api: api.get(ORCHARD))
    assert after["spec"]["rkeConfig"]["machinePools"][1]["quantity"] == 5


def test_pause_and_resume_set_and_take_back_what_holds_the_changes(windrow: Windrow, orchard: Manager):
    def held() -> tuple[Any, Any]:
        raw = orchard.do(lambda api: api.get(ORCHARD))
        annotations = raw["metadata"].get("annotations") or {}
        return raw["spec"].get("paused", False), annotations.get("windrow.io/canary")

    name = "fleet-default/orchard"
    assert windrow("pause", "orchard").out == f"{name}: paused; windrow resume {name} goes on\n"
    assert held() == (True, None)
    assert windrow("pause", "orchard").out == f"{name} is paused already\n"

    answer = windrow("resume", "orchard", "--canary", "2")
    assert answer.out == f"{name}: its machines are changed, 2 at first\nthen: windrow resume {name}\n"
    assert max(map(len, answer.out.splitlines())) <= 80
    assert held() == (False, "2")
    assert windrow("resume", "orchard", "--canary", "2").out == f"{name} has that canary already\n"

    assert windrow("resume", "orchard").out == f"{name}: its machines are changed\n"
    assert held() == (False, None)
    assert windrow("resume", "orchard").out == f"{name} is not paused\n"


@pytest.mark.parametrize("number", ["0", "-1", "one", "1.5", "123456"])
def test_a_canary_is_a_number_of_machines(windrow: Windrow, orchard: Manager, number: str):
    answer = windrow("resume", "orchard", f"--canary={number}")

    assert answer.code == exit_codes.USAGE
    assert "is not a number of machines, as in --canary 1" in answer.err


def test_scale_with_wait_returns_when_every_pool_has_its_machines(windrow: Windrow, orchard: Manager):
    orchard.do(report({"conditions": READY}))
    for number in range(3):
        orchard.do(enlist(f"orchard-servers-a-{number}", "servers", conditions=READY))

    assert windrow("scale", "orchard", "workers=0", "--wait").code == exit_codes.OK


def test_a_kubeconfig_that_is_not_there_yet_is_told_with_the_reason(windrow: Windrow, orchard: Manager):
    orchard.do(report({"waiting": {"for": "the first server"}}))

    answer = windrow("kubeconfig", "orchard")

    assert answer.code == exit_codes.NOT_FOUND
    assert "waits for the first server" in answer.err


def test_a_kubeconfig_is_printed_or_written_for_its_owner_only(
    windrow: Windrow, orchard: Manager, tmp_path: Path
):
    data = {"value": base64.b64encode(b"kind: Config\n").decode()}
    metadata = {"name": "orchard-kubeconfig", "namespace": "fleet-default"}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data}
    orchard.do(lambda api: api.create(SECRET, secret))

    assert windrow("kubeconfig", "orchard").out == "kind: Config\n"
    orchard.do(report({"endpoint": {"mode": "firstServer", "api": "https://10.0.0.1:6443"}}))
    written = windrow("kubeconfig", "orchard", "--file", "k.yaml")
    assert written.code == exit_codes.OK
    assert (
        "It names one server, https://10.0.0.1:6443. Write it again once that machine is replaced."
        in written.err
    )
    assert (tmp_path / "k.yaml").stat().st_mode & 0o077 == 0


def test_delete_returns_when_the_cluster_is_gone(windrow: Windrow, orchard: Manager):
    answer = windrow("delete", "orchard", "--yes")

    assert answer.code == exit_codes.OK
    assert "deleted" in answer.out
    assert windrow("status", "orchard").code == exit_codes.NOT_FOUND


@pytest.mark.parametrize("reason", ["KeepLoadBalancers", "KeepVMs", "KeepClaims", "KeepVolumes"])
def test_delete_says_what_was_left(windrow: Windrow, orchard: Manager, reason: str):
    cluster = orchard.do(lambda api: api.get(ORCHARD))
    about = {"kind": "Cluster", "namespace": "fleet-default", "name": "orchard", "uid": uid_of(cluster)}
    told = "load balancer default/orchard-web stays on Harvester: it may be another's"
    raw = new_object(EVENT, "orchard.1", "fleet-default", involvedObject=about, message=told)
    orchard.do(lambda api: api.create(EVENT, raw | {"reason": reason, "type": "Warning"}))

    answer = windrow("delete", "orchard", "--yes")

    assert answer.code == exit_codes.OK
    assert "default/orchard-web stays on Harvester" in " ".join(answer.err.split())
    assert "except for those" in answer.out


def test_delete_names_every_kind_of_thing_that_a_cluster_leaves() -> None:
    reasons = {
        one.reason
        for module in (actions, operation_actions)
        for one in vars(module).values()
        if hasattr(one, "reason")
    }

    assert {reason for reason in reasons if reason.startswith("Keep")} == wait.KEPT_REASONS


class Typist(io.StringIO):
    """A terminal at which the user presses Ctrl-C instead of answering."""

    came_back = False

    def isatty(self) -> bool:
        return True

    def readline(self, size: int = -1) -> str:  # type: ignore[override]
        signal.raise_signal(signal.SIGINT)
        self.came_back = True
        return "orchard\n"


def test_ctrl_c_at_the_prompt_ends_the_question_at_once(orchard: Manager, tmp_path: Path):
    typist, err = Typist(), io.StringIO()
    context = CliContext({}, tmp_path, typist, io.StringIO(), err, lambda: datetime.now(UTC), terminal=True)

    assert main.run(["delete", "orchard"], context) == exit_codes.INTERRUPTED
    assert not typist.came_back
    assert orchard.do(lambda api: api.get(ORCHARD))


def test_the_question_before_a_deletion_says_that_volumes_go_with_their_data(
    orchard: Manager, tmp_path: Path
):
    class No(io.StringIO):
        def isatty(self) -> bool:
            return True

    out = io.StringIO()
    context = CliContext(
        {}, tmp_path, No("no\n"), out, io.StringIO(), lambda: datetime.now(UTC), terminal=True
    )

    assert main.run(["delete", "orchard"], context) == exit_codes.FAILED
    told = out.getvalue()
    assert (
        "with their disks.\nVolumes of its PersistentVolumes go too, with their data; only Retain keeps one.\n"
        in told
    )
    assert orchard.do(lambda api: api.get(ORCHARD))


def test_delete_without_waiting_leaves_the_rest_to_the_manager(windrow: Windrow, orchard: Manager):
    orchard.do(lambda api: api.patch(ORCHARD, {"metadata": {"finalizers": ["windrow.io/cluster"]}}))

    assert windrow("delete", "orchard", "--yes", "--no-wait").code == exit_codes.OK
    assert "deleting" in windrow("status", "orchard").out


def test_a_deletion_that_hangs_says_what_it_waits_for(windrow: Windrow, orchard: Manager):
    orchard.do(lambda api: api.patch(ORCHARD, {"metadata": {"finalizers": ["windrow.io/cluster"]}}))
    orchard.do(report({"waiting": {"for": "VM default/orchard-workers-a-b to go"}}))

    answer = windrow("delete", "orchard", "--yes", "--timeout", "1s")

    assert answer.code == exit_codes.TIMED_OUT
    assert "VM default/orchard-workers-a-b to go" in answer.err


def test_machines_are_listed_by_cluster(windrow: Windrow, orchard: Manager):
    status = {"phase": "Running", "waiting": {"for": "an address"}, "version": "v1.34.6+rke2r1"}
    orchard.do(enlist("orchard-workers-a-b", "workers", **status))

    answer = windrow("machine", "list")

    assert answer.out.splitlines()[0] == "fleet-default/orchard"
    name, phase, version, address, age = answer.out.splitlines()[2].split()
    assert (name, phase, version) == ("orchard-workers-a-b", "Running", "v1.34.6+rke2r1")
    assert (address, age[-1]) == ("-", "s")
    assert answer.out.splitlines()[3] == "  waits for an address"


def test_a_credential_that_is_not_accepted_is_told_with_server_and_cure(
    windrow: Windrow, manager: Manager, tmp_path: Path
):
    text = (tmp_path / ".windrow" / "manager.yaml").read_text()
    lines = [line for line in text.splitlines() if "client-" not in line]
    (tmp_path / "k.yaml").write_text(
        "\n".join(lines).replace("- name: windrow\n  user:", "- name: windrow\n  user:\n    token: nope")
    )

    answer = windrow("status", "--kubeconfig", str(tmp_path / "k.yaml"))

    assert answer.code == exit_codes.UNREACHABLE
    assert manager.access.server in answer.err


def test_check_reads_a_manifest_in_the_namespace_that_apply_would_use(windrow: Windrow, tmp_path: Path):
    text = MANIFEST.replace("{name: orchard, namespace: fleet-default}", "{name: orchard}")
    (tmp_path / "cluster.yaml").write_text(text)

    assert windrow("check", "-f", "cluster.yaml", "-n", "fleet-default").code == 0
    elsewhere = windrow("check", "-f", "cluster.yaml")
    assert "default/orchard" in elsewhere.out


def test_delete_without_a_terminal_needs_yes(windrow: Windrow, orchard: Manager):
    answer = windrow("delete", "orchard")

    assert answer.code == exit_codes.USAGE
    assert "windrow delete orchard --yes" in answer.err
    assert "Volumes of its PersistentVolumes go too, with their data; only Retain keeps one." in answer.err
    assert orchard.do(lambda api: api.get(ORCHARD))


def test_a_kubeconfig_of_another_server_is_named_as_such(windrow: Windrow, manager: Manager):
    crd = CRD.ref("clusters.provisioning.cattle.io")
    manager.do(lambda api: api.delete(crd))

    answer = windrow("status")

    assert answer.code == exit_codes.NOT_FOUND
    assert "Use the kubeconfig of the management API" in answer.err


# -- the console of a machine ---------------------------------------------------------------------------------------

CONSOLE = ["[ 0.0] Linux version 6.8", "\x1b[2J[ 9.1] cloud-init: FATAL no datasource", "[ 9.9] login: "]


def with_credential(manager: Manager, tmp_path: Path) -> None:
    """The credential of the machines leads to the very same API server, as a Harvester."""
    text = (tmp_path / ".windrow" / "manager.yaml").read_text()
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "cc", "namespace": "fleet-default"},
        "stringData": {"harvestercredentialConfig-kubeconfigContent": text},
    }
    manager.do(lambda api: api.create(SECRET, secret))


def console_of(name: str = "orchard-workers-a-b") -> Callable[..., Any]:
    async def answer(request: Any, caller: Any) -> Reply:
        found = request.path.endswith(f"/default/{name}")
        return Reply(200 if found else 404, "\n".join(CONSOLE).encode(), "text/plain")

    return answer


def test_the_console_of_a_machine_is_read_with_the_clusters_credential(
    windrow: Windrow, orchard: Manager, tmp_path: Path
):
    with_credential(orchard, tmp_path)
    orchard.do(enlist("orchard-workers-a-b", "workers"))
    orchard.serve("/windrow/console/", console_of())

    answer = windrow("machine", "console", "orchard-workers-a-b", "--tail", "2")

    assert (answer.code, answer.err) == (exit_codes.OK, "")
    assert answer.out.splitlines() == ["[2J[ 9.1] cloud-init: FATAL no datasource", "[ 9.9] login: "]


def test_where_harvester_has_no_console_text_the_way_to_the_console_is_named(
    windrow: Windrow, orchard: Manager, tmp_path: Path
):
    with_credential(orchard, tmp_path)
    orchard.do(enlist("orchard-workers-a-b", "workers"))

    answer = windrow("machine", "console", "fleet-default/orchard-workers-a-b")

    assert answer.code == exit_codes.NOT_FOUND
    assert "virtctl console -n default orchard-workers-a-b" in " ".join(answer.err.split())


def test_the_console_of_a_machine_that_does_not_exist(windrow: Windrow, orchard: Manager):
    answer = windrow("machine", "console", "nowhere")

    assert answer.code == exit_codes.NOT_FOUND
    assert "windrow machine list" in answer.err


def test_check_prints_what_was_compared_with_verdict_and_cure_in_80_columns(windrow: Windrow, tmp_path: Path):
    (tmp_path / "cluster.yaml").write_text(MANIFEST.replace("v1.34.7", "v1.21.1"))

    answer = windrow("check", "-f", "cluster.yaml")
    data = json.loads(windrow("check", "-f", "cluster.yaml", "-o", "json").out)

    assert answer.code == exit_codes.REFUSED
    lines = answer.out.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[:2] == [
        "fleet-default/orchard  1 error, 1 warning",
        "Compared with the support matrix of 2026-08-21:",
    ]
    assert "refused  RKE2 v1.21.1+rke2r1 brings neither the cloud provider nor the CSI" in lines
    assert "         → choose a later release; or write cloud-provider-name: external, and" in lines
    (item,) = data["items"]
    assert [one["result"] for one in item["compared"]] == ["warning", "refused"]


def test_a_support_matrix_of_the_users_is_read_and_named(windrow: Windrow, tmp_path: Path):
    (tmp_path / "cluster.yaml").write_text(MANIFEST)
    (tmp_path / "matrix.yaml").write_text('maintained: ["1.90"]')
    (tmp_path / "bad.yaml").write_text("nonsense: 1")

    read = windrow("check", "-f", "cluster.yaml", "--support-matrix", "matrix.yaml")
    bad = windrow("check", "-f", "cluster.yaml", "--support-matrix", "bad.yaml")
    absent = windrow("check", "-f", "cluster.yaml", "--support-matrix", "absent.yaml")

    assert "Compared with the support matrix of 2026-08-21, with your maintained:" in read.out
    assert "warning  RKE2 v1.34.7+rke2r1 is of a line that gets no new releases" in read.out
    assert bad.code == absent.code == exit_codes.REFUSED
    assert "has the key 'nonsense', which has no effect" in bad.err.lower().replace("\n", " ")
    assert "absent.yaml" in absent.err
