"""Writing of the Secrets that belong to a Cluster."""

from __future__ import annotations

from windrow.clusters.api.secrets import CredentialError
from windrow.clusters.context import ReconcileContext
from windrow.clusters.state import ClusterState
from windrow.harvester.names import CLUSTER_UID
from windrow.kubernetes.errors import AlreadyExists
from windrow.kubernetes.objects import Raw, annotations_of, uid_of
from windrow.kubernetes.resources import SECRET


async def ensure_secret(context: ReconcileContext, raw: Raw, state: ClusterState, *, update: bool) -> None:
    """Create a Secret of the Cluster; with `update`, write its data where it exists.

    One that belonged to an earlier Cluster of the same name is replaced. Raises CredentialError for one of someone else.
    """
    api, ref = context.api, SECRET.ref(raw["metadata"]["name"], state.cluster.namespace)
    try:
        made = await api.create(SECRET, raw)
    except AlreadyExists:
        found = await api.get(ref)
        owner = annotations_of(found).get(CLUSTER_UID)
        if not owner:
            raise CredentialError(
                f"Secret {ref.namespace}/{ref.name} exists and is not this cluster's",
                "rename or remove it",
            ) from None
        if owner != state.cluster.uid:
            await api.delete(ref, uid=uid_of(found))
            made = await api.create(SECRET, raw)
        else:
            made = await api.patch(ref, {"data": raw["data"]}) if update else found
    context.secrets.mutated(made)
