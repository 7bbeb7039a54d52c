"""Whether a Rancher manages the same kinds: two controllers of one Cluster would create its machines twice."""

from __future__ import annotations

from windrow.client.client import Client
from windrow.core.errors import UserError
from windrow.kubernetes.errors import NotFound
from windrow.kubernetes.objects import nested
from windrow.kubernetes.resources import DEPLOYMENT, LEASE

_RANCHER = DEPLOYMENT.ref("rancher", "cattle-system")
# The lease by which Rancher's controllers elect the one that works.
_RANCHER_LEASE = LEASE.ref("cattle-controllers", "kube-system")


class RancherPresent(UserError):
    """The Kubernetes that was to hold our management API is a Rancher's."""

    def __init__(self, found: str) -> None:
        super().__init__(
            f"a Rancher manages clusters here: {found}",
            "keep the management API elsewhere (windrow serve --state DIR brings its own), "
            "and bring single clusters over with windrow import",
        )


async def refuse_if_rancher_present(api: Client) -> None:
    """Raise RancherPresent where a Rancher works on the kinds that we would work on."""
    for ref, is_active in ((_RANCHER, _has_replicas), (_RANCHER_LEASE, _is_held)):
        try:
            raw = await api.find(ref)
        except NotFound:  # not even the kind is known there
            continue
        if raw is not None and is_active(raw):
            raise RancherPresent(str(ref))


def _has_replicas(raw: object) -> bool:
    return bool(nested(raw, "spec", "replicas", default=1))


def _is_held(raw: object) -> bool:
    return bool(nested(raw, "spec", "holderIdentity"))
