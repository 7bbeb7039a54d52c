"""The names that a load balancer has on Harvester, and that services share an address under. Pure.

The name holds the UID of the service, as a checksum: a service that is made anew gets another load balancer. All
parts are the Go program's, letter by letter, so that either program finds what the other one made.
"""

from __future__ import annotations

import re
from zlib import crc32

from windrow.harvester.names import is_label_value

MAX_LENGTH = 63
CHECKSUM_LENGTH = 8
_LABEL = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
_CHECKSUM = re.compile(r"[0-9a-f]{8}")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


def load_balancer_name(cluster: str, namespace: str, service: str, uid: str) -> str:
    """The name of the LoadBalancer that the service with this `uid` has on Harvester; at most 63 characters."""
    base = _base(cluster, namespace, service)
    return f"{base[: MAX_LENGTH - CHECKSUM_LENGTH]}{crc32((base + uid).encode()):08x}"


def is_load_balancer_name(name: str, cluster: str, namespace: str, service: str) -> bool:
    """Whether `name` was made by `load_balancer_name` for this service, with whatever UID."""
    stem = _base(cluster, namespace, service)[: MAX_LENGTH - CHECKSUM_LENGTH]
    return name.startswith(stem) and _CHECKSUM.fullmatch(name[len(stem) :]) is not None


def is_dns_subdomain(name: str) -> bool:
    """Whether an API server takes it. A cluster name with strange characters makes one that is not."""
    return _SUBDOMAIN.fullmatch(name) is not None


def _base(cluster: str, namespace: str, service: str) -> str:
    start = cluster if _LABEL.fullmatch(cluster) else f"a{cluster}"
    return f"{start}-{namespace}-{service}-"


def sharing_label(namespace: str, service: str) -> str:
    """What secondaries of this primary have as the value of their label.

    The Go program's `<namespace>.<name>` where that is a legal value. It may be too long for one; then it is cut and
    ends with a checksum behind an underscore, which no Go value has.
    """
    plain = f"{namespace}.{service}"
    if is_label_value(plain):
        return plain
    return f"{plain[: MAX_LENGTH - CHECKSUM_LENGTH - 1]}_{crc32(plain.encode()):08x}"
