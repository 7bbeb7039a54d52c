"""What a node's file of the guest credential holds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from windrow.bootstrap.node_config import CLOUD_PROVIDER_CONFIG
from windrow.bootstrap.spec import BootstrapSpec, InvalidBootstrapSpec


def credential_text(spec: BootstrapSpec, user: Mapping[str, Any], *, harvester: bool) -> str:
    """The content of the credential file; "" where the user names a file that is already on the machine, or nothing.

    `secret://namespace:name` stands for the credential that the cluster controller delivers; with Harvester's provider
    it is delivered unasked. Other text is the content itself. Raises InvalidBootstrapSpec.
    """
    given = str(user.get(CLOUD_PROVIDER_CONFIG) or "")
    if given.startswith("/"):
        return ""
    if given and not given.startswith("secret://"):
        return given
    if spec.guest_credential and (given or harvester):
        return spec.guest_credential.kubeconfig
    if given:
        raise InvalidBootstrapSpec(
            f"{given} was not read", "create the Secret it names, or remove cloud-provider-config"
        )
    return ""
