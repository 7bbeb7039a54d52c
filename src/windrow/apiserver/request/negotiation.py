"""Content negotiation: the media type and transform of a response, from the Accept header (reference/05 §7.4)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from windrow.apiserver import apierrors

JSON, YAML = "application/json", "application/yaml"
DISCOVERY = "APIGroupDiscoveryList"


@dataclass(frozen=True, slots=True)
class NegotiatedType:
    """A media type and, for Table and PartialObjectMetadata, its `as` parameter."""

    media_type: str = JSON
    as_: str = ""
    parameters: dict[str, str] = field(default_factory=dict)


def _parse_accept(accept: str) -> list[NegotiatedType]:
    found = []
    for element in accept.split(","):
        media, *rest = (part.strip() for part in element.split(";"))
        if not media:
            continue
        parameters = dict(part.split("=", 1) for part in rest if "=" in part)
        found.append(NegotiatedType(media.lower(), parameters.get("as", ""), parameters))
    return found


def _is_supported(form: NegotiatedType, offered: Sequence[str]) -> bool:
    if not form.as_:
        return True
    if form.as_ not in offered:
        return False
    group, version = form.parameters.get("g", ""), form.parameters.get("v", "")
    if form.as_ == DISCOVERY:
        return group == "apidiscovery.k8s.io" and version in ("v2", "v2beta1")
    return group == "meta.k8s.io" and version == "v1"


TRANSFORMS = ("Table", "PartialObjectMetadata", "PartialObjectMetadataList")


def negotiate(accept: str, offered: Sequence[str] = TRANSFORMS) -> NegotiatedType:
    """The first media type in `accept` that is served. Raises 406 when there is none."""
    if not accept:
        return NegotiatedType()
    for form in _parse_accept(accept):
        if not _is_supported(form, offered):
            continue
        if form.media_type in (JSON, "*/*", "application/*"):
            return NegotiatedType(JSON, form.as_, form.parameters)
        if form.media_type == YAML and not form.as_:
            return NegotiatedType(YAML)
    raise apierrors.not_acceptable((JSON, YAML))
