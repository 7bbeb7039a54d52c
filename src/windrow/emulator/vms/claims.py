"""PVCs of a VM: created and expanded by its volumeClaimTemplates annotation, deleted by its removedPVCs annotation."""

from __future__ import annotations

from windrow.emulator import names
from windrow.emulator.kit.client import AdminClient
from windrow.emulator.kit.listers import Listers
from windrow.emulator.kit.vm_readings import BadTemplates, read_claim_templates
from windrow.kubernetes.objects import Raw, annotations_of, namespace_of, nested, new_object
from windrow.kubernetes.resources import PVC


def render_claim(template: Raw, namespace: str) -> Raw:
    """The PVC of an entry of `volumeClaimTemplates`. It has no owner: it outlives its VM."""
    metadata = template["metadata"]
    annotations = {**(metadata.get("annotations") or {}), names.VOLUME_FOR_VM: "true"}
    labels = metadata.get("labels") or {}
    spec = template.get("spec") or {}
    return new_object(PVC, metadata["name"], namespace, labels=labels, annotations=annotations, spec=spec)


def list_removed_claims(vm: Raw) -> list[str]:
    """The PVCs that are deleted with the VM: those that its annotation names, and no others."""
    listed = annotations_of(vm).get(names.REMOVED_CLAIMS, "")
    return [name for name in (one.strip() for one in listed.split(",")) if name]


class VolumeClaims:
    """Creates, expands and deletes the PVCs of VMs. Everything may be repeated."""

    def __init__(self, client: AdminClient, listers: Listers) -> None:
        self._client = client
        self._listers = listers

    async def ensure(self, vm: Raw) -> None:
        """Create or expand every PVC of the VM's annotation."""
        try:
            wanted = read_claim_templates(vm)
        except BadTemplates:
            return  # refused by the webhook already
        namespace = namespace_of(vm)
        for template in wanted:
            if (namespace, template["metadata"]["name"]) in self._listers.claims:
                await self._grow(template, namespace)
            elif self._knows_image(template):
                await self._client.ensure(PVC, render_claim(template, namespace))

    def _knows_image(self, template: Raw) -> bool:
        """An entry with an unknown image is skipped without a message, as shipped: its PVC is never created."""
        namespace, _, name = annotations_of(template).get(names.IMAGE_ID, "").partition("/")
        return not name or (namespace, name) in self._listers.images

    async def _grow(self, template: Raw, namespace: str) -> None:
        name = template["metadata"]["name"]
        path = ("spec", "resources", "requests", "storage")
        wanted = nested(template, *path)
        if not wanted or nested(self._listers.claims[namespace, name], *path) == wanted:
            return

        def grow(raw: Raw) -> None:
            raw["spec"].setdefault("resources", {})["requests"] = {"storage": wanted}

        await self._client.mutate(PVC.ref(name, namespace), grow)

    async def remove(self, vm: Raw) -> None:
        """Delete the PVCs that the VM names. Raises the refusal of one; the VM then keeps its finalizer."""
        for name in list_removed_claims(vm):
            claim = await self._client.find(PVC.ref(name, namespace_of(vm)))
            if claim is not None:
                await self._client.delete(PVC, claim)
