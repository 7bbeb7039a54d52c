"""The guest's own credential for Harvester: five objects there, made with the cloud credential.

The account has the cluster's name, in the namespace of its VMs (reference/04 §9.5). Two clusters of one name with one
VM namespace would share it, and their load balancers and volumes too. So the preflight refuses the second one.
"""

from __future__ import annotations

from datetime import timedelta

from windrow.clusters.plan.actions import (
    CreateServiceAccount,
    DeleteServiceAccount,
    PartialPlan,
    RecordServiceAccount,
    RecreateServiceAccount,
)
from windrow.clusters.state import ClusterState
from windrow.harvester.unanswered import describe_expiry, plan_end

# The token is issued a moment after the account is made; Harvester's own dialogue asks as often.
RECHECK_SOON = timedelta(seconds=1)


def plan(state: ClusterState) -> PartialPlan:
    """Make what is missing; wait until it can be used."""
    partial = PartialPlan()
    if state.has_lost_secrets:
        return partial  # there is no Secret to keep it in
    match state.guest_credential.state:
        case "missing":
            account = f"{state.cluster.vm_namespace}/{state.cluster.name}"
            why = f"the guest's cloud provider and CSI driver need ServiceAccount {account}"
            if state.recorded.service_account is None:
                partial.actions.append(
                    RecordServiceAccount(
                        why, state.cluster.vm_namespace, state.cluster.name, state.cluster.credential
                    )
                )
            partial.actions.append(CreateServiceAccount(why))
        case "pending":
            partial.actions.append(CreateServiceAccount("its token is not stored yet"))
            partial.wait(
                f"Harvester to issue a token for ServiceAccount {state.recorded.service_account}",
                "machines are made" if state.recorded.initialized else "the init server is created",
                until=state.now + RECHECK_SOON,
            )
        case "lost":
            why = (
                "it was deleted there, so the cloud provider and the CSI driver of the guest cannot reach Harvester; the "
                "machines that hold its void token have to be replaced"
            )
            holders = tuple(machine.name for machine in state.machines)
            partial.actions.append(RecreateServiceAccount(why, holders))
        case "refused":
            partial.wait(
                f"consent to the guest's credential: {state.guest_credential.because}", "machines are made"
            )
        case _:
            pass
    return partial


def plan_deletion(state: ClusterState) -> PartialPlan:
    """Delete it once no request to create it may be carried out any more, since it is looked for only once."""
    partial, account = PartialPlan(), state.recorded.service_account
    end = state.account_may_be_made_until
    if account is not None and plan_end(end, state.now) == "wait":
        partial.wait(
            describe_expiry(f"ServiceAccount {account}"),
            "the ServiceAccount on Harvester and the Secrets are deleted",
            until=end,
        )
    elif account is not None:
        partial.actions.append(DeleteServiceAccount("the Cluster is deleted"))
    return partial
