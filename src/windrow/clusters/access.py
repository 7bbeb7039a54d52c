"""The guest's own credential for Harvester: five objects there, made with the cloud credential.

The account is called like the cluster, in the namespace of its VMs (reference/04 §9.5). Two clusters of one name with
one VM namespace would share it, and their load balancers and volumes too, which carry the cluster's name. So a
second one is refused, before anything is made for it.
"""

from __future__ import annotations

from datetime import timedelta

from windrow.clusters.actions import GrantAccess, RecordAccount, RevokeAccess, Wait
from windrow.clusters.parts import Part, Sheet
from windrow.clusters.seen import Seen

# The token is issued a moment after the account is made; Harvester's own dialogue asks as often.
ASK_AGAIN = timedelta(seconds=1)


def plan(seen: Seen) -> Part:
    """Make what is missing; wait until it can be used."""
    sheet = Sheet()
    if seen.has_lost_secrets:
        return sheet.part()  # there is no place to keep it
    match seen.access.state:
        case "missing":
            account = f"{seen.cluster.vm_namespace}/{seen.cluster.name}"
            why = f"the guest's cloud provider and storage driver need the account {account}"
            if seen.standing.account is None:
                sheet.actions.append(
                    RecordAccount(why, seen.cluster.vm_namespace, seen.cluster.name, seen.cluster.credential)
                )
            sheet.actions.append(GrantAccess(why))
        case "ordered":
            sheet.actions.append(GrantAccess("its token has not been kept yet"))
            sheet.waits.append(
                Wait(
                    "Harvester to issue the token of the guest's account",
                    "the first server is recorded",
                    until=seen.now + ASK_AGAIN,
                )
            )
        case _:
            pass
    return sheet.part()


def plan_end(seen: Seen) -> list[RevokeAccess]:
    account = seen.standing.account
    if account is None:
        return []
    return [
        RevokeAccess(f"the cluster is deleted; account {account.namespace}/{account.name} was made for it")
    ]
