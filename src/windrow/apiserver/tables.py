"""Objects as `meta.k8s.io/v1` tables and as bare metadata (reference/05 §7.13)."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from windrow.apiserver.context import ListResult, ObjectResult
from windrow.apiserver.encoding import list_meta
from windrow.apiserver.types.registry import Column, ResourceType
from windrow.core.clock import parse_time
from windrow.core.formats.duration import human_duration
from windrow.core.formats.json import dumps

Raw = dict[str, Any]

META = "meta.k8s.io/v1"


def _cell(column: Column, raw: Raw, now: datetime) -> Any:
    value = column.cell(raw)
    if column.type == "date":
        return _age_cell(value, now)
    if isinstance(value, (dict, list)):
        return dumps(_sorted(value)).decode()
    if column.type == "string" and value is not None and not isinstance(value, str):
        return str(value).lower() if isinstance(value, bool) else str(value)
    return value


def _sorted(value: Any) -> Any:
    """The value with its keys in order, as Go writes maps."""
    if isinstance(value, dict):
        return {key: _sorted(value[key]) for key in sorted(value)}
    return [_sorted(one) for one in value] if isinstance(value, list) else value


def _age_cell(value: Any, now: datetime) -> str:
    if not value:
        return "<unknown>"
    try:
        span = now - parse_time(value)
    except (ValueError, TypeError):
        return "<invalid>"
    return human_duration(span) if span > timedelta(seconds=-2) else "<invalid>"


def _definition(column: Column, *, custom: bool) -> Raw:
    type = "string" if column.type == "date" and not custom else column.type
    return {
        "name": column.name,
        "type": type,
        "format": column.format,
        "description": column.description or column.name,
        "priority": column.priority,
    }


def partial_metadata(raw: Raw) -> Raw:
    """The object as PartialObjectMetadata."""
    return {"kind": "PartialObjectMetadata", "apiVersion": META, "metadata": raw["metadata"]}


def _embedded(raw: Raw, include: str) -> Any:
    return raw if include == "Object" else None if include == "None" else partial_metadata(raw)


def build_table(
    type: ResourceType,
    objects: list[Raw],
    head: Raw,
    now: datetime,
    include: str = "Metadata",
    *,
    columns: bool = True,
) -> Raw:
    """A Table with a row per object; `head` is its list metadata."""
    rows = []
    for raw in objects:
        cells = [_cell(column, raw, now) for column in type.columns]
        rows.append({"cells": cells, "object": _embedded(raw, include)})
    made: Raw = {"kind": "Table", "apiVersion": META, "metadata": head}
    shown = [_definition(column, custom=type.custom) for column in type.columns]
    return {**made, "columnDefinitions": shown if columns else None, "rows": rows}


def render_table(outcome: ObjectResult | ListResult, now: datetime, include: str) -> Raw:
    if isinstance(outcome, ListResult):
        objects = [entry.raw for entry in outcome.entries]
        return build_table(outcome.type, objects, list_meta(outcome), now, include)
    raw = outcome.entry.raw
    head = {"resourceVersion": raw["metadata"].get("resourceVersion", "")}
    return build_table(outcome.type, [raw], head, now, include)


def render_partial_metadata(outcome: ObjectResult | ListResult) -> Raw:
    """Metadata only, of one object or of a list."""
    if isinstance(outcome, ObjectResult):
        return partial_metadata(outcome.entry.raw)
    items = [partial_metadata(entry.raw) for entry in outcome.entries]
    head = {"kind": "PartialObjectMetadataList", "apiVersion": META, "metadata": list_meta(outcome)}
    return {**head, "items": items}
