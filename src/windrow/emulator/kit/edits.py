"""Edits of an object's metadata, for `AdminClient.mutate`. All may be repeated."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from windrow.kubernetes.objects import Raw, annotations_of, finalizers_of

Edit = Callable[[Raw], None]


def add_finalizers(*names: str) -> Edit:
    def edit(raw: Raw) -> None:
        if missing := [one for one in names if one not in finalizers_of(raw)]:
            raw["metadata"]["finalizers"] = [*finalizers_of(raw), *missing]

    return edit


def remove_finalizer(name: str) -> Edit:
    def edit(raw: Raw) -> None:
        if name in finalizers_of(raw):
            raw["metadata"]["finalizers"] = [one for one in finalizers_of(raw) if one != name]

    return edit


def annotate(raw: Raw, wanted: Mapping[str, str | None]) -> None:
    """Set these annotations; None removes one."""
    merged = {**annotations_of(raw), **wanted}
    annotations = {key: value for key, value in merged.items() if value is not None}
    if annotations != annotations_of(raw):
        raw["metadata"]["annotations"] = annotations
