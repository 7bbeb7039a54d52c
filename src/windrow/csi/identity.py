"""The service Identity: who the driver is, and whether it is ready."""

from __future__ import annotations

from collections.abc import Callable

from google.protobuf.wrappers_pb2 import BoolValue

from windrow.csi import names
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
        """Not ready where there is a problem: side-cars wait then. After an error they would end."""
        return csi.ProbeResponse(ready=BoolValue(value=not self._problem()))
