"""Claims as Harvester has them now, of this guest cluster alone."""

from __future__ import annotations

from windrow.client.client import Client
from windrow.csi.handles import is_object_name
from windrow.csi.harvester.attachments.records import AttachRecord, plan_record
from windrow.csi.harvester.claims import Claim, read_claim
from windrow.csi.harvester.owners import GuestCluster
from windrow.csi.harvester.refusals import not_found_as, requesting
from windrow.csi.volumes import VolumeNotFound
from windrow.csi.waits import waits_for
from windrow.kubernetes.errors import Conflict
from windrow.kubernetes.resources import PVC, ObjectRef


class ClaimReads:
    """Reads the claims of one namespace, each by a request."""

    def __init__(self, client: Client, namespace: str, guest: GuestCluster) -> None:
        self._client, self._namespace, self._guest = client, namespace, guest

    def ref(self, name: str) -> ObjectRef:
        return PVC.ref(name, self._namespace)

    async def get(self, volume_id: str) -> Claim:
        """Raises VolumeNotFound, and FailedPrecondition where another guest cluster made it."""
        if not is_object_name(volume_id):
            raise VolumeNotFound(volume_id)
        found = await self.find(volume_id)
        if found is None:
            raise VolumeNotFound(volume_id, f" in namespace {self._namespace} on Harvester")
        return found

    async def record_attachment(self, claim: Claim, vm: str, record: AttachRecord) -> Claim | None:
        """Record on the claim that its volume is about to be attached to the VM; None where the claim was changed since it was
        read, so that nothing is recorded. Raises VolumeNotFound, and FailedPrecondition where another guest cluster made it."""
        name = claim.volume.id
        ref = self.ref(name)
        self._guest.require_own(claim.guest_uid, ref)
        change = plan_record(claim.attach_records, vm, record, claim.resource_version)
        waits_for(f"an answer of Harvester about {ref}")
        with requesting(f"record an attachment on {ref}"), not_found_as(ref, VolumeNotFound(name)):
            try:
                return read_claim(await self._client.patch(ref, change))
            except Conflict:
                return None

    async def find(self, name: str) -> Claim | None:
        """Raises FailedPrecondition where another guest cluster made it."""
        await self._guest.wait_until_known()
        ref = self.ref(name)
        waits_for(f"an answer of Harvester about {ref}")
        with requesting(f"read {ref}"):
            raw = await self._client.find(ref)
        if raw is None:
            return None
        found = read_claim(raw)
        self._guest.require_own(found.guest_uid, ref)
        return found
