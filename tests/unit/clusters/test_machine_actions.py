"""Without consent for each credential that a Machine names, no action touches the infrastructure."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.fake_machines import MemoryMachines, RecordedCall
from tests.unit.clusters.builders import NOON, a_cluster, a_machine, a_pool, look, record_of, unready

from windrow.clusters.api.secrets import CredentialError, SecretData
from windrow.clusters.context import ReconcileContext, StalePlan
from windrow.clusters.execute.machine_actions import MachineActions
from windrow.clusters.orphans import OrphanVm
from windrow.clusters.plan import actions as do
from windrow.clusters.state import ClusterState, MachineState
from windrow.kubernetes.errors import Conflict
from windrow.kubernetes.resources import SECRET, ObjectRef
from windrow.machines.port import MachineRefused

HERE = frozenset({"fleet-default"})
POOL = a_pool()
# Its two records name Secrets of other namespaces.
CONFIG = {
    "MachineName": "w1",
    "VMNamespace": "default",
    "WindrowMachineUID": "uid-w1",
    "WindrowCredential": "theirs:cc",
}
MACHINE = record_of(a_machine("w1", POOL), driver_config=CONFIG, credential="ns:cc")
ACTIONS = (
    do.ProvisionVM("it is due", "w1"),
    do.StartVM("it is due", "w1"),
    do.ScrubBootstrapData("it is due", "w1"),
    do.DeleteVM("it is due", "w1"),
)
UNRECORDED = do.DeleteUnrecordedVMs("it is due", (OrphanVm("default", "w9", "vm-w9", "uid-w9"),))


def execute(action: Any, state: ClusterState, consents: dict[str, frozenset[str]]) -> list[RecordedCall]:
    """The calls of the infrastructure; `consents` names, by the namespace of a Secret cc, who may use it."""
    unused: Any = None
    clock: Any = SimpleNamespace(monotonic=lambda: NOON - NOON, now=lambda: NOON)
    secrets: Any = {
        SECRET.ref("cc", ns): SecretData(ns, "cc", allowed_namespaces=to) for ns, to in consents.items()
    }
    context = ReconcileContext(
        api=unused, clusters=unused, machines=unused, secrets=secrets, clock=clock, rng=unused, stamps=unused
    )
    machines = MemoryMachines(clock)
    methods = MachineActions(context, machines, unused)
    method: Any = {
        do.ProvisionVM: methods.provision_vm,
        do.StartVM: methods.start_vm,
        do.ScrubBootstrapData: methods.scrub_bootstrap_data,
        do.DeleteVM: methods.delete_vm,
        do.DeleteUnrecordedVMs: methods.delete_unrecorded_vms,
    }[type(action)]
    calls = machines.calls
    try:
        asyncio.run(method(action, state))
    except CredentialError:
        assert calls == []
        raise
    except MachineRefused:
        pass  # there is no such machine
    return calls


def name_of(action: Any) -> str:
    return type(action).__name__


@pytest.mark.parametrize("action", ACTIONS, ids=name_of)
@pytest.mark.parametrize("lacking", ["ns", "theirs"])
def test_without_consent_to_both_credentials_of_its_machine_nothing_is_done(
    action: Any, lacking: str
) -> None:
    consents = {"ns": HERE, "theirs": HERE} | {lacking: frozenset({"elsewhere"})}

    with pytest.raises(
        CredentialError, match=f"credential Secret {lacking}/cc does not exist or does not allow"
    ):
        execute(action, look(a_cluster(POOL), [MACHINE]), consents)


def test_without_consent_to_the_credential_of_the_cluster_no_unrecorded_vm_is_deleted() -> None:
    with pytest.raises(CredentialError, match="credential Secret ns/cc"):
        execute(UNRECORDED, look(a_cluster(POOL)), {"theirs": HERE})


@pytest.mark.parametrize(
    ("action", "call"),
    [
        (do.StartVM("it is due", "w1"), ("power", "w1")),
        (do.DeleteVM("it is due", "w1"), ("remove", "w1")),
        (UNRECORDED, ("remove", "w9")),
    ],
    ids=["StartVM", "DeleteVM", "DeleteUnrecordedVMs"],
)
def test_with_consent_it_is_done(action: Any, call: tuple[str, str]) -> None:
    calls = execute(action, look(a_cluster(POOL), [MACHINE]), {"ns": HERE, "theirs": HERE})

    assert [(one.verb, one.machine) for one in calls] == [call]


def test_a_cloud_config_of_another_namespace_needs_consent_too() -> None:
    state = look(a_cluster(POOL, cloud_config_secret="given:cc"), [MACHINE])

    with pytest.raises(CredentialError, match="credential Secret given/cc"):
        execute(ACTIONS[0], state, {"ns": HERE, "theirs": HERE})


# --- the taint out-of-service ----------------------------------------------------------------------------------------

KEY, BY = "node.kubernetes.io/out-of-service", "windrow.io/out-of-service-by"
OTHER = {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}
PERSONS = {"key": KEY, "value": "nodeshutdown", "effect": "NoExecute"}
OURS = {**PERSONS, "value": "nodeshutdown-by-windrow", "timeAdded": "2026-01-01T12:00:00Z"}
DOWN = unready(MACHINE)
TAINT = do.TaintNode("its VM is gone", "w1", "w1", "node-w1")
UNTAINT = do.UntaintNode("its VM is back", "w1", "w1", "node-w1")


class GuestNode:
    """A guest with one Node, or none; keeps what is written of it."""

    def __init__(
        self,
        *taints: dict[str, str],
        by: str = "",
        uid: str = "node-w1",
        ready: bool = False,
        error: Any = None,
    ) -> None:
        annotations = {BY: by} if by else {}
        metadata = {"name": "w1", "uid": uid, "resourceVersion": "7", "annotations": annotations}
        status = {"conditions": [{"type": "Ready", "status": str(ready)}]}
        raw = {"metadata": metadata, "spec": {"taints": list(taints)}, "status": status}
        self.raw = raw if uid else None
        self.error, self.written = error, list[Any]()
        self.client = self

    async def find(self, ref: ObjectRef) -> Any:
        return self.raw

    async def patch_node(self, name: str, change: Any) -> None:
        self.written.append((name, change))
        if self.error:
            raise self.error

    def run(
        self, action: do.TaintNode | do.UntaintNode | do.LabelNode, machine: MachineState = MACHINE
    ) -> list[Any]:
        unused: Any = None
        clock: Any = SimpleNamespace(now=lambda: NOON)
        context = ReconcileContext(
            api=unused,
            clusters=unused,
            machines=unused,
            secrets=unused,
            clock=clock,
            rng=unused,
            stamps=unused,
        )
        guests: Any = SimpleNamespace(find=lambda uid: self)
        methods = MachineActions(context, unused, guests)
        state = look(a_cluster(POOL), [machine])
        match action:
            case do.TaintNode():
                asyncio.run(methods.taint_node(action, state))
            case do.UntaintNode():
                asyncio.run(methods.untaint_node(action, state))
            case do.LabelNode():
                asyncio.run(methods.label_node(action, state))
        return self.written


def written(*taints: dict[str, str]) -> list[Any]:
    metadata = {"uid": "node-w1", "resourceVersion": "7"}
    return [("w1", {"metadata": metadata, "spec": {"taints": list(taints) or None}})]


def test_a_node_is_tainted_beside_the_taints_that_it_has_where_it_is_as_it_was_read() -> None:
    assert GuestNode(OTHER).run(TAINT, DOWN) == written(OTHER, OURS)


def test_a_taint_that_was_set_meanwhile_stays_whose_it_is() -> None:
    assert GuestNode(OTHER, {"key": KEY, "effect": "NoExecute"}).run(TAINT, DOWN) == []


def test_a_node_that_is_ready_by_now_is_not_tainted() -> None:
    node = GuestNode(OTHER, ready=True)

    with pytest.raises(StalePlan):
        node.run(TAINT, DOWN)
    assert node.written == []


def test_a_node_whose_vm_is_deleted_is_tainted_while_it_is_ready() -> None:
    assert GuestNode(ready=True).run(TAINT, MACHINE) == written(OURS)


def test_the_taint_of_the_manager_is_removed_and_no_other() -> None:
    assert GuestNode(OTHER, OURS).run(UNTAINT) == written(OTHER)
    assert GuestNode(OURS).run(UNTAINT) == written()
    assert GuestNode(OURS, {**PERSONS, "effect": "NoSchedule"}).run(UNTAINT) == written(
        {**PERSONS, "effect": "NoSchedule"}
    )


@pytest.mark.parametrize("by", ["", "windrow", "harvester-csi-driver"])
def test_the_taint_of_another_program_or_a_person_is_not_removed_whatever_the_kubelet_writes_on_its_node(
    by: str,
) -> None:
    assert GuestNode(PERSONS, by=by).run(UNTAINT) == []
    assert GuestNode({**OURS, "key": "other"}, by=by).run(UNTAINT) == []


@pytest.mark.parametrize("action", [TAINT, UNTAINT], ids=name_of)
@pytest.mark.parametrize("uid", ["", "another"])
def test_a_node_that_is_gone_or_another_by_now_is_left_alone(action: Any, uid: str) -> None:
    node = GuestNode(OURS, uid=uid)

    with pytest.raises(StalePlan):
        node.run(action)
    assert node.written == []


def test_a_node_that_has_changed_meanwhile_is_looked_at_again() -> None:
    with pytest.raises(StalePlan):
        GuestNode(error=Conflict("changed")).run(TAINT, DOWN)


@pytest.mark.parametrize(("recorded", "written"), [("1d678ee9", "1d678ee9"), ("", "unknown")])
def test_a_node_gets_its_labels_and_the_digest_of_the_configuration_that_its_machine_was_made_with(
    recorded: str, written: str
) -> None:
    labels = {"node-role.kubernetes.io/db": ""}
    label = do.LabelNode("kubelet may not", "w1", "w1", labels)

    (one,) = GuestNode().run(label, record_of(MACHINE, config_hash=recorded))

    annotations = {"windrow.io/applied-revision": written}
    assert one == ("w1", {"metadata": {"labels": labels, "annotations": annotations}})


def test_a_node_whose_files_are_being_changed_keeps_the_mark_that_says_so() -> None:
    status = {"update": {"id": "abc", "change": "service restart", "step": "Apply"}}
    label = do.LabelNode("kubelet may not", "w1", "w1", {"team": "blue"})

    (one,) = GuestNode().run(label, record_of(MACHINE, config_hash="1d678ee9", status=status))

    assert one == ("w1", {"metadata": {"labels": {"team": "blue"}}})
