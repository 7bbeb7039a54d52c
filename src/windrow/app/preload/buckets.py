"""The site's object store: the buckets that manifests name for snapshots of etcd, on an emulated Harvester.

A Cluster names a bucket in spec.rkeConfig.etcd.s3, and a Secret with the keys. The emulated network has the bucket at the
endpoint that the Cluster names, else at `ENDPOINT`. The Secret, in Rancher's form, says what the Cluster leaves out: the
endpoint, and the authority that signed its certificate.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from windrow.clusters.api.kinds import CLUSTER
from windrow.clusters.api.references import (
    list_grants,
    parse_secret_reference,
    qualify_credential,
    render_allowed_namespaces,
)
from windrow.core.clock import Clock
from windrow.core.rng import Rng, SystemRng
from windrow.emulator.kit.network import Network
from windrow.emulator.storage.object_store import ObjectStore
from windrow.kubernetes.objects import Raw, namespace_of, nested, new_object
from windrow.kubernetes.resources import SECRET, ObjectRef

ENDPOINT = "s3.emulator.windrow.io:9000"
CREDENTIAL = SECRET.ref("cc-s3", "fleet-default")
REGION = "us-east-1"
HTTPS_PORT = 443
_NAME = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_ENDPOINT = re.compile(r"(?P<host>[A-Za-z0-9.-]{1,253})(?::(?P<port>[0-9]{1,5}))?")
_KEY = "s3credentialConfig-"


@dataclass(frozen=True, slots=True)
class Bucket:
    """A bucket for snapshots, at `endpoint` (host and port) of a region; its keys are in the Secret `credential`."""

    name: str
    endpoint: str = ENDPOINT
    region: str = REGION
    credential: ObjectRef = CREDENTIAL

    def __str__(self) -> str:
        return f"{self.name} at {self.endpoint}, keys in Secret {self.credential.namespace}/{self.credential.name}"


class NotBucket(ValueError):
    """The text is no name of a bucket."""


def named_bucket(name: str) -> Bucket:
    """The bucket of this name at `ENDPOINT`. Raises NotBucket."""
    if not _NAME.fullmatch(name):
        raise NotBucket(f"wanted 3 to 63 lower-case letters, digits, dots and dashes, found {name[:80]!r}")
    return Bucket(name)


def list_buckets(documents: Iterable[Mapping[str, Any]]) -> tuple[Bucket, ...]:
    """The buckets that the Clusters in `documents` name together with a credential. What is malformed is left out: the
    manager reports it."""
    found = (_read_bucket(raw) for raw in documents if raw.get("kind") == CLUSTER.kind)
    return tuple(dict.fromkeys(one for one in found if one is not None))


def _read_bucket(cluster: Mapping[str, Any]) -> Bucket | None:
    s3 = nested(cluster, "spec", "rkeConfig", "etcd", "s3")
    if not isinstance(s3, Mapping):
        return None
    name, credential = str(s3.get("bucket") or ""), str(s3.get("cloudCredentialName") or "")
    ref = parse_secret_reference(qualify_credential(credential, namespace_of(cluster) or "default"))
    endpoint = _ENDPOINT.fullmatch(str(s3.get("endpoint") or ENDPOINT))
    if ref is None or endpoint is None or not _NAME.fullmatch(name):
        return None
    port = int(endpoint["port"] or HTTPS_PORT)
    return Bucket(name, f"{endpoint['host']}:{port}", str(s3.get("region") or REGION), ref)


@dataclass(frozen=True, slots=True)
class ObjectStores:
    """The stores that serve buckets, by endpoint. All have the same keys."""

    buckets: tuple[Bucket, ...]
    by_endpoint: Mapping[str, ObjectStore]

    def list_keys(self, bucket: str) -> list[str]:
        """The keys of the objects in the buckets of this name."""
        return sorted(key for store in self.by_endpoint.values() for key in store.buckets.get(bucket, ()))

    def render_secrets(self, documents: Sequence[Mapping[str, Any]]) -> list[Raw]:
        """The Secrets with the keys. Each allows the namespaces of the Clusters in `documents` that name it."""
        grants = list_grants(documents)
        first = {one.credential: one for one in reversed(self.buckets)}
        return [
            new_object(
                SECRET,
                ref.name,
                ref.namespace,
                annotations=render_allowed_namespaces(grants.get(ref, ())),
                type="Opaque",
                stringData={f"{_KEY}{key}": value for key, value in self._render(bucket).items()},
            )
            for ref, bucket in sorted(first.items(), key=lambda item: str(item[0]))
        ]

    def _render(self, bucket: Bucket) -> dict[str, str]:
        store = self.by_endpoint[bucket.endpoint]
        return {
            "accessKey": store.access_key,
            "secretKey": store.secret_key,
            "defaultRegion": bucket.region,
            "defaultEndpoint": bucket.endpoint,
            "defaultEndpointCA": "".join(one.ca for one in self.by_endpoint.values()),
        }


def open_object_stores(
    network: Network, buckets: Sequence[Bucket], clock: Clock, rng: Rng | None = None
) -> ObjectStores:
    """Serve the buckets in the simulated network, and nowhere else, with keys from the operating system's random source.

    Of several regions at one endpoint the first is that of its store. Raises ValueError where another service has an endpoint."""
    rng = rng or SystemRng()
    access_key, secret_key = f"{rng.bits(80):020x}", f"{rng.bits(160):040x}"
    found: dict[str, ObjectStore] = {}
    for endpoint in dict.fromkeys(one.endpoint for one in buckets):
        held = [one for one in buckets if one.endpoint == endpoint]
        store = found[endpoint] = ObjectStore(
            clock,
            dict.fromkeys(one.name for one in held),
            access_key=access_key,
            secret_key=secret_key,
            region=held[0].region,
        )
        host, _, port = endpoint.rpartition(":")
        store.listen(network, host, int(port))
    return ObjectStores(tuple(buckets), found)
