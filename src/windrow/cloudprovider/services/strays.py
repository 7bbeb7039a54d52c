"""Load balancers of services that had this one's name before: they are given back before, or whatever, it gets. Pure."""

from __future__ import annotations

from windrow.cloudprovider.services.actions import Release
from windrow.cloudprovider.services.balancer_readings import Balancer
from windrow.cloudprovider.services.seeing import Seen


def free_strays(seen: Seen) -> tuple[Balancer, ...]:
    """Those that may go. One whose address secondaries still show stays until they have the new one, unless there is
    no new one while it stays."""
    if seen.balancer is not None and seen.balancer.refusal:
        return seen.strays
    shown = {address for one in seen.users for address in one.told}
    return tuple(one for one in seen.strays if one.is_deleting or not shown & set(one.given))


def release_strays(seen: Seen) -> tuple[Release, ...]:
    if seen.host is not None:
        return ()
    return tuple(
        Release(one, because="it is of an earlier service of this name, with another UID")
        for one in free_strays(seen)
        if not one.is_deleting
    )
