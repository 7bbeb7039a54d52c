"""What there is to choose from for a new cluster: credentials of the management API, images and networks of a Harvester."""

from __future__ import annotations

from windrow.app.harvester.offers import OFFERS, is_usable_image, list_offers, name_in_manifest
from windrow.client.client import Client
from windrow.client.transport import Transport
from windrow.clusters.api.names import CREDENTIAL_KEY
from windrow.harvester.references import read_network
from windrow.kubernetes.errors import Forbidden
from windrow.kubernetes.objects import Raw, name_of, namespace_of
from windrow.kubernetes.resources import SECRET

# Where Rancher keeps cloud credentials.
RANCHER_CREDENTIALS = "cattle-global-data"


async def list_credentials(api: Client, namespace: str) -> list[str]:
    """The Secrets with a Harvester kubeconfig, as `NAMESPACE:NAME`: in Rancher's namespace and in this one, as far as their
    caller may list them. Nothing but names leaves this function."""
    found: list[str] = []
    for place in dict.fromkeys((RANCHER_CREDENTIALS, namespace)):
        try:
            secrets = await api.list(SECRET, place)
        except Forbidden:
            continue
        found += [f"{namespace_of(raw)}:{name_of(raw)}" for raw in secrets if _is_credential(raw)]
    return sorted(found)


def _is_credential(secret: Raw) -> bool:
    return CREDENTIAL_KEY in (secret.get("data") or {})


async def list_choices(harvester: Transport, own: str) -> tuple[list[str], list[str]]:
    """The images that boot and the networks that machines may use, as a manifest names them."""
    client = Client(harvester)
    images = [raw for raw in await list_offers(client, OFFERS["images"], own=own) if is_usable_image(raw)]
    networks = [
        raw
        for raw in await list_offers(client, OFFERS["networks"], own=own)
        if not (network := read_network(raw)).is_for_storage and network.is_ready is not False
    ]
    return list(map(name_in_manifest, images)), list(map(name_in_manifest, networks))
