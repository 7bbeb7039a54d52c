"""The plugins of a guest's kube-apiserver for storage: DefaultStorageClass and PersistentVolumeClaimResize."""

from __future__ import annotations

from windrow.apiserver.admission import AdmissionRequest
from windrow.apiserver.server import ApiServer
from windrow.emulator.storage.classes import check_resize, class_of, is_growing, set_default
from windrow.kubernetes.objects import Raw, name_of
from windrow.kubernetes.resources import PVC, STORAGE_CLASS


class StorageAdmission:
    """Both plugins, on one API server."""

    def __init__(self, api: ApiServer) -> None:
        self._context = api.context
        api.admission.append(self._mutate)
        api.validation.append(self._validate)

    async def _mutate(self, operation: AdmissionRequest) -> None:
        claim = operation.object
        is_new = operation.kind == PVC and operation.old_object is None and not operation.subresource
        if is_new and claim is not None and class_of(claim) is None:
            set_default(claim, await self._classes())

    async def _validate(self, operation: AdmissionRequest) -> None:
        claim, old = operation.object, operation.old_object
        if operation.kind != PVC or operation.subresource or claim is None or old is None:
            return
        if is_growing(claim, old):
            classes = {name_of(one): one for one in await self._classes()}
            check_resize(claim, old, classes.get(class_of(old) or ""))

    async def _classes(self) -> list[Raw]:
        return [entry.raw for entry in await self._context.entries(STORAGE_CLASS)]
