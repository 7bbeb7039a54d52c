"""The guest's own credential for Harvester: five objects there, made with the cloud credential.

The account is called like the cluster, in the namespace of its VMs (reference/04 §9.5). Two clusters of one name with
one VM namespace would share it, and their load balancers and volumes too, which carry the cluster's name. So a
second one is refused, before anything is made for it.
"""

from __future__ import annotations

from datetime import timedelta

from windrow.clusters.plan.actions import (
    CreateServiceAccount,
    DeleteServiceAccount,
    RecordServiceAccount,
    Wait,
)
from windrow.clusters.plan.partial_plan import PartialPlan, PlanBuilder
from windrow.clusters.state import ClusterState

# The token is issued a moment after the account is made; Harvester's own dialogue asks as often.
RECHECK_SOON = timedelta(seconds=1)


def plan(state: ClusterState) -> PartialPlan:
    """Make what is missing; wait until it can be used."""
    builder = PlanBuilder()
    if state.has_lost_secrets:
        return builder.build()  # there is no place to keep it
    match state.guest_credential.state:
        case "missing":
            account = f"{state.cluster.vm_namespace}/{state.cluster.name}"
            why = f"the guest's cloud provider and storage driver need the account {account}"
            if state.recorded.service_account is None:
                builder.actions.append(
                    RecordServiceAccount(
                        why, state.cluster.vm_namespace, state.cluster.name, state.cluster.credential
                    )
                )
            builder.actions.append(CreateServiceAccount(why))
        case "ordered":
            builder.actions.append(CreateServiceAccount("its token has not been kept yet"))
            builder.waits.append(
                Wait(
                    "Harvester to issue the token of the guest's account",
                    "the first server is recorded",
                    until=state.now + RECHECK_SOON,
                )
            )
        case _:
            pass
    return builder.build()


def plan_deletion(state: ClusterState) -> list[DeleteServiceAccount]:
    account = state.recorded.service_account
    if account is None:
        return []
    return [
        DeleteServiceAccount(
            f"the cluster is deleted; account {account.namespace}/{account.name} was made for it"
        )
    ]
