"""The shape of a VM that mutators and validators read. The schema of the CRD refuses any other, after them."""

from __future__ import annotations

from windrow.kubernetes.objects import Raw, nested

_SPEC = ("spec", "template", "spec")
_DOMAIN = (*_SPEC, "domain")
_AFFINITY = (*_SPEC, "affinity")
OBJECTS: tuple[tuple[str, ...], ...] = (
    ("spec",),
    ("spec", "template"),
    ("spec", "template", "metadata"),
    _SPEC,
    _DOMAIN,
    *(
        (*_DOMAIN, key)
        for key in ("cpu", "memory", "resources", "machine", "firmware", "devices", "features")
    ),
    (*_DOMAIN, "resources", "limits"),
    (*_DOMAIN, "resources", "requests"),
    _AFFINITY,
    *((*_AFFINITY, key) for key in ("nodeAffinity", "podAffinity", "podAntiAffinity")),
)
LISTS: tuple[tuple[str, ...], ...] = (
    (*_SPEC, "networks"),
    (*_SPEC, "volumes"),
    (*_DOMAIN, "devices", "disks"),
    (*_DOMAIN, "devices", "interfaces"),
)


def is_shaped(vm: Raw) -> bool:
    """Whether what must be an object is one, or is missing; and whether the lists hold objects."""
    if not isinstance(nested(vm, "spec", "template"), dict):
        return False
    if not all(isinstance(nested(vm, *path, default={}), dict) for path in OBJECTS):
        return False
    lists = [nested(vm, *path, default=[]) for path in LISTS]
    if not all(isinstance(one, list) and all(isinstance(item, dict) for item in one) for one in lists):
        return False
    grace = nested(vm, *_SPEC, "terminationGracePeriodSeconds", default=0)
    return isinstance(grace, int) and all(isinstance(_strategy(vm, key), kind) for key, kind in _STRATEGIES)


_STRATEGIES = (("runStrategy", str), ("running", bool))


def _strategy(vm: Raw, key: str) -> object:
    return nested(vm, "spec", key, default="" if key == "runStrategy" else False)
