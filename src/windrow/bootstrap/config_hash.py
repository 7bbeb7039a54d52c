"""A digest of what would have to be applied again on a machine if it changed.

Made of the user's fields only, so a newer Windrow that renders differently gives the same revision. Secrets, labels and
taints are not in it: those are renewed by other ways.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from windrow.bootstrap.node_config import merge_config
from windrow.bootstrap.spec import BootstrapSpec


def config_hash(spec: BootstrapSpec) -> str:
    """The short digest of one machine."""
    return config_hashes([spec])[0]


def config_hashes(specs: Iterable[BootstrapSpec]) -> list[str]:
    """The `config_hash` of each. Values that they share are encoded once: a Cluster has a hundred pools, and a value a
    megabyte. The digest is that of one JSON text, as ever; another one would replace every machine."""
    encode = _SharedJson()
    return [_config_hash(spec, encode) for spec in specs]


def _config_hash(spec: BootstrapSpec, encode: _SharedJson) -> str:
    fields = {
        "version": [encode(spec.version)],
        "roles": [encode(sorted(role.value for role in spec.roles))],
        "config": _join_object({key: [encode(value)] for key, value in merge_config(spec).items()}),
        "tlsSan": [encode(sorted(spec.tls_san))],
        "etcd": [encode(_without_s3_credential(spec.etcd))],
        "registries": [encode(spec.registries)],
        "chartValues": [encode(spec.chart_values)],
        "additionalManifest": [encode(spec.additional_manifest)],
    }
    # Only where they are set: the digest of a Cluster without them is that of earlier releases.
    later = {
        "agentEnvVars": spec.environment,
        "machineSelectorFiles": spec.selector_files,
        "podSecurity": spec.pod_security,
    }
    fields |= {key: [encode(value)] for key, value in later.items() if value}
    digest = hashlib.sha256()
    for piece in _join_object(fields):
        digest.update(piece)
    return digest.hexdigest()[:16]


def _join_object(fields: Mapping[str, Iterable[bytes]]) -> Iterator[bytes]:
    """The JSON object, as json.dumps writes it with sorted keys, of fields that are encoded already."""
    separator = b"{"
    for key in sorted(fields):
        yield separator + json.dumps(key).encode() + b": "
        yield from fields[key]
        separator = b", "
    yield b"}" if fields else b"{}"


class _SharedJson:
    """json.dumps that encodes each value once, as long as it lives."""

    def __init__(self) -> None:
        # By id; the value is held, so that its id stays its own.
        self._encoded: dict[int, tuple[Any, bytes]] = {}

    def __call__(self, value: Any) -> bytes:
        known = self._encoded.get(id(value))
        if known is None:
            text = json.dumps(value, sort_keys=True, default=_plain)
            known = self._encoded[id(value)] = (value, text.encode())
        return known[1]


def _without_s3_credential(etcd: Mapping[str, Any]) -> Mapping[str, Any]:
    s3 = etcd.get("s3")
    if not isinstance(s3, Mapping):
        return etcd
    return {**etcd, "s3": {key: value for key, value in s3.items() if key not in ("accessKey", "secretKey")}}


def _plain(value: Any) -> Any:
    """Mappings and sequences as `json` can write them."""
    return dict(value) if isinstance(value, Mapping) else list(value)
