"""Without consent for each credential that a Machine names, no action touches the infrastructure."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.fake_machines import MemoryMachines, RecordedCall
from tests.unit.clusters.builders import NOON, a_cluster, a_machine, a_pool, look, record_of

from windrow.clusters.api.secrets import CredentialError, SecretData
from windrow.clusters.context import ReconcileContext
from windrow.clusters.execute.machine_actions import MachineActions
from windrow.clusters.orphans import OrphanVm
from windrow.clusters.plan import actions as do
from windrow.clusters.state import ClusterState
from windrow.kubernetes.resources import SECRET
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
