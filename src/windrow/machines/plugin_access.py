"""What a plugin is handed of a credential, and which Harvester it leads to."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from windrow.kube.errors import KubeError
from windrow.machines.connections import Connections, Credentials, Dial
from windrow.machines.port import HARVESTER, InfrastructureUnknown
from windrow.values.clock import Clock

# A driver's name and a credential's "namespace:name" -> its fields (`<driver>credentialConfig-<field>` in the Secret).
CredentialFields = Callable[[str, str], Awaitable[Mapping[str, str]]]

KUBECONFIG = "kubeconfigContent"


@dataclass(frozen=True, slots=True)
class Keys:
    """One credential of the day. `env` are the variables by which a plugin takes it, `identity` is its Harvester's."""

    credential: str
    fields: Mapping[str, str] = field(repr=False)
    env: Mapping[str, str] = field(repr=False)
    identity: str = ""


class KeyRing:
    """Reads credentials anew for each use, so that a rotated one takes effect at once.

    With `dial` a Harvester is asked who it is, once for each connection; without, its CA has to say so.
    """

    def __init__(
        self, credentials: Credentials, fields: CredentialFields, dial: Dial | None, clock: Clock
    ) -> None:
        self._fields = fields
        self._asks = dial is not None
        self._connections = Connections(credentials, dial or _nothing, clock)

    async def get(self, driver: str, credential: str, recorded: str = "") -> Keys:
        """The credential, which must lead to the recorded Harvester. Raises InfrastructureUnknown."""
        if driver == HARVESTER:
            connection = await self._connections.get(credential)
            identity = await (connection.confirm if self._asks else connection.compare)(recorded)
            return _keys(driver, credential, {KUBECONFIG: connection.kubeconfig}, identity)
        try:
            return _keys(driver, credential, await self._fields(driver, credential))
        except InfrastructureUnknown:
            raise
        except (KubeError, LookupError, ValueError) as error:
            raise InfrastructureUnknown(
                f"credential {credential} cannot be read: {error}",
                f"create that Secret with the fields of driver {driver}, or name another",
            ) from error

    async def close(self) -> None:
        await self._connections.close()


def _keys(driver: str, credential: str, fields: Mapping[str, str], identity: str = "") -> Keys:
    env = {_variable(driver, name): text for name, text in fields.items() if text and "\0" not in text}
    return Keys(credential, dict(fields), env, identity)


def _variable(driver: str, name: str) -> str:
    """`HARVESTER_KUBECONFIG_CONTENT`, as Rancher hands credentials to rancher-machine."""
    kebab = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)
    return re.sub(r"[^A-Z0-9_]", "_", f"{driver}_{kebab}".upper())


def _nothing(access: Any) -> Any:
    """Stands for a transport where nothing is asked."""
    return None
