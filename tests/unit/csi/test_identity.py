"""The service Identity."""

from __future__ import annotations

import pytest

from windrow.csi.identity import IdentityService
from windrow.protocols.csi import csi_pb2 as csi

CONTROLLER_SERVICE = csi.PluginCapability.Service.CONTROLLER_SERVICE
ONLINE = csi.PluginCapability.VolumeExpansion.ONLINE


async def test_the_driver_has_the_name_of_the_go_driver():
    info = await IdentityService("v1 (abc)", True).GetPluginInfo(csi.GetPluginInfoRequest())

    assert (info.name, info.vendor_version) == ("driver.harvesterhci.io", "v1 (abc)")


@pytest.mark.parametrize("serves", [True, False])
async def test_the_controller_is_advertised_where_it_is_served(serves: bool):
    answer = await IdentityService("v1", serves).GetPluginCapabilities(csi.GetPluginCapabilitiesRequest())

    found = [one.service.type for one in answer.capabilities if one.HasField("service")]
    assert found == [CONTROLLER_SERVICE] * serves
    assert [one.volume_expansion.type for one in answer.capabilities if not one.HasField("service")] == [
        ONLINE
    ]


async def test_a_driver_that_can_work_is_ready():
    answer = await IdentityService("v1", True).Probe(csi.ProbeRequest())

    assert answer.ready.value


async def test_a_driver_that_cannot_work_is_not_ready():
    """No error: side-cars wait for a driver that is not ready, and end at an error."""
    answer = await IdentityService("v1", True, lambda: "the credential was rejected").Probe(
        csi.ProbeRequest()
    )

    assert answer.HasField("ready")
    assert not answer.ready.value
