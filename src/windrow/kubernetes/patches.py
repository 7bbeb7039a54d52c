"""JSON Patch (RFC 6902) and JSON Merge Patch (RFC 7386), applied and made. Pure; inputs are not changed."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from windrow.core.formats.json import dumps

# What the copy operations of one patch may make together; kube-apiserver has the same limit.
MAX_COPIED_BYTES = 3 * 1024 * 1024


class PatchFailed(ValueError):
    """A JSON Patch step cannot be applied; `test` failed or a path is missing."""


def apply_merge_patch(target: Any, patch: Any) -> Any:
    """`target` with `patch` merged in: null deletes a key, lists are replaced."""
    if not isinstance(patch, Mapping):
        return copy.deepcopy(patch)
    result = dict(target) if isinstance(target, Mapping) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = apply_merge_patch(result.get(key), value)
    return result


def make_merge_patch(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """The smallest merge patch that turns `before` into `after`; empty when they are equal."""
    patch: dict[str, Any] = {key: None for key in before if key not in after}
    for key, value in after.items():
        old = before.get(key)
        if key in before and old == value:
            continue
        if isinstance(old, Mapping) and isinstance(value, Mapping):
            patch[key] = make_merge_patch(old, value)
        else:
            patch[key] = value
    return patch


def _pointer_parts(pointer: str) -> list[str]:
    if pointer == "":
        return []
    if not pointer.startswith("/"):
        raise PatchFailed(f"a JSON pointer starts with '/', found {pointer!r}")
    return [part.replace("~1", "/").replace("~0", "~") for part in pointer[1:].split("/")]


def _index(text: str, size: int, *, may_append: bool) -> int:
    if text == "-" and may_append:
        return size
    if not text.isdigit() or (len(text) > 1 and text[0] == "0"):
        raise PatchFailed(f"{text!r} is not a list index")
    index = int(text)
    if index > size or (index == size and not may_append):
        raise PatchFailed(f"index {index} is outside a list of {size}")
    return index


def _get(document: Any, steps: Sequence[str]) -> Any:
    here = document
    for step in steps:
        if isinstance(here, dict):
            if step not in here:
                raise PatchFailed(f"nothing at {step!r}")
            here = here[step]
        elif isinstance(here, list):
            here = here[_index(step, len(here), may_append=False)]
        else:
            raise PatchFailed(f"cannot step into a scalar at {step!r}")
    return here


def _add(document: Any, steps: Sequence[str], value: Any) -> Any:
    if not steps:
        return value
    holder = _get(document, steps[:-1])
    if isinstance(holder, list):
        holder.insert(_index(steps[-1], len(holder), may_append=True), value)
    elif isinstance(holder, dict):
        holder[steps[-1]] = value
    else:
        raise PatchFailed(f"cannot add {steps[-1]!r} to a scalar")
    return document


def _remove(document: Any, steps: Sequence[str]) -> Any:
    if not steps:
        raise PatchFailed("the whole document cannot be removed")
    holder = _get(document, steps[:-1])
    _get(holder, steps[-1:])
    if isinstance(holder, list):
        del holder[int(steps[-1])]
    else:
        del holder[steps[-1]]
    return document


def apply_json_patch(document: Any, patch: Sequence[Mapping[str, Any]]) -> Any:
    """`document` with every step applied in order. Raises PatchFailed; then nothing has changed.

    A step `copy` may double the document, so thirty of them would make a gigabyte of a kilobyte: what they copy is bounded.
    """
    copied = 0
    result = copy.deepcopy(document)
    for step in patch:
        try:
            action, path = step["op"], _pointer_parts(step["path"])
        except (KeyError, TypeError) as error:
            raise PatchFailed("every step needs 'op' and 'path'") from error
        if action in ("add", "replace", "test") and "value" not in step:
            raise PatchFailed(f"{action} needs a 'value'")
        match action:
            case "add":
                result = _add(result, path, copy.deepcopy(step["value"]))
            case "remove":
                result = _remove(result, path)
            case "replace":
                _get(result, path)
                if path:
                    result = _add(_remove(result, path), path, copy.deepcopy(step["value"]))
                else:
                    result = copy.deepcopy(step["value"])
            case "test":
                if _get(result, path) != step["value"]:
                    raise PatchFailed(f"test failed at {step['path']!r}")
            case "move" | "copy":
                source = _pointer_parts(str(step.get("from", "")))
                value = _get(result, source)
                if action == "move":
                    result = _remove(result, source)
                else:
                    copied += len(dumps(value))
                    if copied > MAX_COPIED_BYTES:
                        raise PatchFailed(f"its copy operations copy more than {MAX_COPIED_BYTES} bytes")
                    value = copy.deepcopy(value)
                result = _add(result, path, value)
            case _:
                raise PatchFailed(f"unknown operation {action!r}")
    return result
