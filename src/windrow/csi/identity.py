"""The service Identity: who the driver is, and whether it is ready."""

from __future__ import annotations

from collections.abc import Callable

from google.protobuf.wrappers_pb2 import BoolValue

from windrow.csi import names
from windrow.csi.errors import FailedPrecondition
from windrow.protocols.csi import csi_pb2 as csi

_SERVICE = csi.PluginCapability.Service.Type
_EXPANSION = csi.PluginCapability.VolumeExpansion.Type


class IdentityService:
    """Implements Identity. `problem` says why the driver cannot work now, "" when it can; `serves_controller` whether this
    process has the service Controller."""

    def __init__(
        self, version: str, serves_controller: bool, problem: Callable[[], str] = lambda: ""
    ) -> None:
        self._version = version
        self._serves_controller = serves_controller
        self._problem = problem

    async def GetPluginInfo(self, request: csi.GetPluginInfoRequest) -> csi.GetPluginInfoResponse:
        return csi.GetPluginInfoResponse(name=names.DRIVER, vendor_version=self._version)

    async def GetPluginCapabilities(
        self, request: csi.GetPluginCapabilitiesRequest
    ) -> csi.GetPluginCapabilitiesResponse:
        expansion = csi.PluginCapability.VolumeExpansion(type=_EXPANSION.ONLINE)
        found = [csi.PluginCapability(volume_expansion=expansion)]
        if self._serves_controller:
            service = csi.PluginCapability.Service(type=_SERVICE.CONTROLLER_SERVICE)
            found.insert(0, csi.PluginCapability(service=service))
        return csi.GetPluginCapabilitiesResponse(capabilities=found)

    async def Probe(self, request: csi.ProbeRequest) -> csi.ProbeResponse:
        """Not ready yet is an answer; what only an operator can end is an error."""
        problem = self._problem()
        if problem:
            raise FailedPrecondition(problem, "the driver goes on as soon as that is over")
        return csi.ProbeResponse(ready=BoolValue(value=True))
