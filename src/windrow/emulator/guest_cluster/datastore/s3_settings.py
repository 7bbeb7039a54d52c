"""S3Settings: where and how a server keeps snapshots in a bucket: from flags, a request, or the config Secret.

The Secret counts only while everything else is at its defaults (reference/10-day2 §2.1); it is read at each operation.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from windrow.core.formats.duration import NotDuration, parse_duration
from windrow.core.text import decode_base64
from windrow.emulator.guest_cluster.distribution.distribution import Settings
from windrow.kubernetes.objects import Raw, nested

_FLAG = "etcd-s3-"
_TIMEOUT = timedelta(minutes=5)
RETENTION = 5
_LONGEST_COUNT = 10  # digits
# The field of a request, by our own.
_REQUEST_FIELDS = {
    "access_key": "accessKey",
    "bucket": "bucket",
    "bucket_lookup": "bucketLookup",
    "config_secret": "configSecret",
    "endpoint": "endpoint",
    "endpoint_ca": "endpointCA",
    "folder": "folder",
    "proxy": "proxy",
    "region": "region",
    "secret_key": "secretKey",
    "session_token": "sessionToken",
}
_FLAG_NAMES = {name: name.replace("_", "-") for name in _REQUEST_FIELDS} | {
    "bucket_lookup": "bucket-lookup-type"
}
_NOT_IN_SECRET = ("config_secret", "endpoint_ca")


class BadS3Settings(Exception):
    """The settings cannot be used; the message is the program's."""


@dataclass(frozen=True, slots=True)
class S3Settings:
    """The settings of one operation."""

    access_key: str = field(default="", repr=False)
    secret_key: str = field(default="", repr=False)
    session_token: str = field(default="", repr=False)
    bucket: str = ""
    bucket_lookup: str = ""
    config_secret: str = ""
    endpoint: str = "s3.amazonaws.com"
    endpoint_ca: str = ""  # bundles in base64, separated by spaces, or paths on the server's disk
    folder: str = ""
    proxy: str = ""
    region: str = "us-east-1"
    insecure: bool = False
    skip_ssl_verify: bool = False
    timeout: timedelta = _TIMEOUT
    retention: int = RETENTION

    @property
    def is_default(self) -> bool:
        """Whether nothing was set but what does not count: the Secret's name and the retention."""
        return self == S3Settings(config_secret=self.config_secret, retention=self.retention)

    def with_secret(self, secret: Raw, bundles: Mapping[str, str]) -> S3Settings:
        """Those of the config Secret; `bundles` are the data of the ConfigMap that it names."""
        data = {key: _decode(value) for key, value in (secret.get("data") or {}).items()}
        texts = {
            name: data[_FLAG + flag]
            for name, flag in _FLAG_NAMES.items()
            if name not in _NOT_IN_SECRET and _FLAG + flag in data
        }
        inline = data.get("etcd-s3-endpoint-ca", "")
        encoded = [base64.b64encode(one.encode()).decode() for one in (inline, *bundles.values()) if one]
        return S3Settings(
            **texts,
            endpoint_ca=" ".join(encoded),
            insecure=data.get("etcd-s3-insecure") == "true",
            skip_ssl_verify=data.get("etcd-s3-skip-ssl-verify") == "true",
            timeout=_read_timeout(data.get("etcd-s3-timeout", "")),
            retention=self.retention,
        )

    def render(self) -> Raw:
        """What an ETCDSnapshotFile says of its bucket."""
        said = {
            "endpoint": self.endpoint,
            "endpointCA": self.endpoint_ca,
            "skipSSLVerify": self.skip_ssl_verify,
            "bucket": self.bucket,
            "region": self.region,
            "prefix": self.folder,
            "insecure": self.insecure,
        }
        return {key: value for key, value in said.items() if value}

    def join(self, *names: str) -> str:
        """The key of an object in the folder."""
        return "/".join(part for part in (self.folder.strip("/"), *names) if part)


def read_flags(settings: Settings) -> S3Settings | None:
    """The settings of a server's flags, None without `etcd-s3`."""
    if not settings.is_true("etcd-s3"):
        return None
    texts = {name: value for name, flag in _FLAG_NAMES.items() if (value := settings.text(_FLAG + flag))}
    own = settings.text("etcd-snapshot-retention")
    return S3Settings(
        **texts,
        insecure=settings.is_true("etcd-s3-insecure"),
        skip_ssl_verify=settings.is_true("etcd-s3-skip-ssl-verify"),
        timeout=_read_timeout(settings.text("etcd-s3-timeout")),
        retention=read_count(settings.text("etcd-s3-retention"), read_count(own, RETENTION)),
    )


def read_count(text: str, default: int) -> int:
    """The number that a flag gives, else the default."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < _LONGEST_COUNT else default


def read_request(raw: Mapping[str, Any]) -> S3Settings:
    """The settings in a request's `s3`; what is left out is empty there, but the defaults for time and place. Raises
    BadS3Settings for a field of another type."""
    texts: dict[str, str] = {}
    for name, key in _REQUEST_FIELDS.items():
        value = raw.get(key)
        if value is not None and not isinstance(value, str):
            raise BadS3Settings(
                f"json: cannot unmarshal {_go_kind(value)} into Go struct field EtcdS3.s3.{key} of type string"
            )
        if value:
            texts[name] = value
    for key in ("insecure", "skipSSLVerify"):
        if not isinstance(raw.get(key, False), bool):
            raise BadS3Settings(
                f"json: cannot unmarshal {_go_kind(raw[key])} into Go struct field EtcdS3.s3.{key} of type bool"
            )
    retention = raw.get("retention", RETENTION)
    if type(retention) is not int:
        raise BadS3Settings(
            f"json: cannot unmarshal {_go_kind(retention)} into Go struct field EtcdS3.s3.retention of type int"
        )
    return S3Settings(
        **texts,
        insecure=raw.get("insecure", False),
        skip_ssl_verify=raw.get("skipSSLVerify", False),
        timeout=_read_timeout(str(raw.get("timeout") or "")),
        retention=retention,
    )


def name_ca_config_map(secret: Raw) -> str:
    """The ConfigMap of CAs that a config Secret names, "" without one."""
    return _decode(nested(secret, "data", "etcd-s3-endpoint-ca-name", default=""))


def _decode(value: object) -> str:
    try:
        return decode_base64(str(value), "replace")
    except ValueError:
        return ""


def _read_timeout(text: str) -> timedelta:
    try:
        return parse_duration(text) if text else _TIMEOUT
    except NotDuration:
        return _TIMEOUT


def _go_kind(value: object) -> str:
    kinds = {bool: "bool", int: "number", float: "number", str: "string", list: "array", dict: "object"}
    return kinds.get(type(value), "null")
