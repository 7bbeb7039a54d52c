"""What a check asks of Harvester, by the credentials of the manifest and of the management API, or by a kubeconfig that its
user names. Nothing is written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches

from windrow.app.embedded import read_credential
from windrow.app.network import HttpConnector
from windrow.client.client import Client
from windrow.clusters.api.cluster import Cluster
from windrow.clusters.api.kinds import CLUSTER
from windrow.clusters.api.names import CREDENTIAL_KEY
from windrow.clusters.api.references import parse_secret_reference
from windrow.clusters.sources.endpoint_pools import check_all_pools, list_claims
from windrow.clusters.sources.harvester_versions import read_harvester_versions
from windrow.core.clock import Clock
from windrow.core.rng import Rng
from windrow.core.text import decode_base64, join_some
from windrow.harvester.connection import describe_credential
from windrow.harvester.supported_charts import HarvesterVersions
from windrow.kubernetes.errors import Forbidden, NotFound
from windrow.kubernetes.kubeconfig import ClientConfig, parse_kubeconfig
from windrow.kubernetes.objects import Raw, name_of, namespace_of, nested, uid_of
from windrow.kubernetes.resources import SECRET, ObjectRef
from windrow.machines.harvester.machines import HarvesterMachines
from windrow.machines.port import InfrastructureUnknown, Problem

MAX_NAMED = 3  # credentials, in a hint


class CheckedHarvester:
    """The Harvesters of a manifest. `kubeconfig` takes the place of every credential; without it, a credential is one of
    `documents`, else it is read from the management API `api`. `machines` is the port, for its `check`."""

    def __init__(
        self,
        documents: Sequence[Raw],
        api: Client | None,
        sockets: HttpConnector,
        clock: Clock,
        kubeconfig: str = "",
    ) -> None:
        self._api, self._kubeconfig = api, kubeconfig
        self._given: Mapping[str, Raw] = {
            f"{namespace_of(raw)}:{name_of(raw)}": raw for raw in documents if raw.get("kind") == SECRET.kind
        }
        self.machines = HarvesterMachines(self._read_kubeconfig, sockets.connect, clock, Rng())

    async def _read_kubeconfig(self, credential: str) -> str:
        if self._api is None or self._kubeconfig:
            return self._kubeconfig
        if text := _read_given(self._given.get(credential)):
            return text
        try:
            return await read_credential(self._api, credential)
        except NotFound as error:
            ref = parse_secret_reference(credential)
            others = await self._list_credentials(ref) if ref is not None else []
            if ref is None or ref.name in others:
                raise
            raise InfrastructureUnknown(
                f"{describe_credential(credential)} does not exist", _find_hint(ref, others)
            ) from error

    async def _list_credentials(self, ref: ObjectRef) -> list[str]:
        """The names of the credentials for Harvester that are in the namespace of `ref`, as far as this account may list
        them."""
        given = [raw for key, raw in self._given.items() if key.startswith(f"{ref.namespace}:")]
        assert self._api is not None
        try:
            found = [*given, *await self._api.list(SECRET, ref.namespace)]
        except (Forbidden, NotFound):
            found = given
        return sorted({name_of(raw) for raw in found if _has_key(raw)})

    async def _read_access(self, credential: str) -> ClientConfig:
        return parse_kubeconfig(await self._read_kubeconfig(credential))

    async def read_versions(self, credential: str) -> HarvesterVersions:
        return await read_harvester_versions(await self.machines.get_client(credential))

    async def check_endpoint(self, cluster: Cluster) -> list[Problem]:
        """The problems of the addresses that the cluster asks for."""
        get_client, get_access = self.machines.get_client, self._read_access
        if self._api is None:
            return await check_all_pools(get_client, get_access, cluster)
        try:
            recorded = await self._api.find(CLUSTER.ref(cluster.name, cluster.namespace))
        except Forbidden:  # so it is not known which claims are its own
            return await check_all_pools(get_client, get_access, cluster)
        uid = uid_of(recorded) if recorded is not None else ""
        return await check_all_pools(get_client, get_access, cluster, await list_claims(self._api), uid)


def _read_given(secret: Raw | None) -> str:
    """The kubeconfig in the document; "" where there is none."""
    plain = nested(secret or {}, "stringData", CREDENTIAL_KEY)
    encoded = nested(secret or {}, "data", CREDENTIAL_KEY)
    if isinstance(plain, str):
        return plain
    return decode_base64(encoded) if isinstance(encoded, str) else ""


def _has_key(secret: Raw) -> bool:
    return any(CREDENTIAL_KEY in (secret.get(part) or {}) for part in ("data", "stringData"))


def _find_hint(wanted: ObjectRef, others: Sequence[str]) -> str:
    """What to write in place of a credential that does not exist; `others` are those in its namespace."""
    if near := get_close_matches(wanted.name, others, 1):
        return f"write {wanted.namespace}:{near[0]}"
    create = "create that Secret with a Harvester kubeconfig, or name another"
    if not others:
        return create
    return f"{create}; there are {join_some([f'{wanted.namespace}:{one}' for one in others], MAX_NAMED)}"
