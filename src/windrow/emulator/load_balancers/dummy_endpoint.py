"""The dummy endpoint, which keeps traffic off the host itself while no machine of a LoadBalancer is Ready."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from windrow.emulator.kit.listers import Key
from windrow.kubernetes.objects import Raw, nested

ADDRESS = "10.52.0.255"
UID = "dummy347-546a-4642-9da6-5608endpoint"


def with_dummy(endpoints: Iterable[Raw], balancer: Key) -> list[Raw]:
    """The endpoints, with a dummy while none of them is Ready, and only then."""
    real = [one for one in endpoints if not is_dummy(one)]
    if any(nested(one, "conditions", "ready") for one in real):
        return real
    target = {"namespace": balancer[0], "name": balancer[1], "uid": UID}
    return [*real, {"addresses": [ADDRESS], "conditions": {"ready": True}, "targetRef": target}]


def is_dummy(endpoint: Mapping[str, Any]) -> bool:
    return bool(nested(endpoint, "targetRef", "uid") == UID)
