"""What creating and changing an object have in common: cleaning, defaults, admission, rules."""

from __future__ import annotations

import re
from typing import Literal

from windrow.apiserver import metadata, schema, statuses
from windrow.apiserver.admission import Operation, admit
from windrow.apiserver.builtins import fold_string_data
from windrow.apiserver.calls import Call
from windrow.apiserver.core import Core, kept
from windrow.apiserver.ownership import Manager, note_update
from windrow.apiserver.rules import find_bad_base64
from windrow.apiserver.store import Entry, Raw, Stale
from windrow.apiserver.types import Type
from windrow.kubernetes.errors import KubeError
from windrow.kubernetes.resources import POD, SECRET

_MODES = ("Ignore", "Strict", "Warn")
_OPTIONS = {"create": "CreateOptions", "update": "UpdateOptions"}
ATTEMPTS = 16  # how often an unconditional write meets a newer version before it gives up


def clean(type: Type, raw: Raw, call: Call, *, defaults: bool = True) -> Raw:
    """`raw` shaped, pruned and defaulted by its schema; unknown fields warn or fail as the caller asked."""
    raw = metadata.shaped(raw, type)
    if type.kind == SECRET:
        fold_string_data(raw)
        bad = find_bad_base64(raw)
        if bad:
            raise statuses.bad_request(f'Secret in version "v1" cannot be handled as a Secret: {bad}')
    if not type.custom:
        schema.drop_nulls(raw)
    unknown = schema.prune(type.schema, raw)
    mode = call.options.get("fieldValidation") or "Warn"
    if mode not in _MODES:
        cause = statuses.not_supported("fieldValidation", mode, ("", *_MODES))
        raise statuses.invalid_options(_OPTIONS.get(call.verb, "PatchOptions"), cause)
    unknown.sort()
    if unknown and mode == "Strict":
        listed = ", ".join(f'unknown field "{path}"' for path in unknown)
        raise statuses.bad_request(
            f'{type.kind.kind} in version "{type.kind.version}" cannot be handled as a {type.kind.kind}: '
            f"strict decoding error: {listed}"
        )
    if unknown and mode == "Warn":
        call.warnings += [f'unknown field "{path}"' for path in unknown]
    if defaults:
        schema.default(type.schema, raw)
    return raw


def check(type: Type, raw: Raw, old: Raw | None) -> None:
    """Raises the 422 that names every broken rule of `raw`."""
    causes = metadata.faults(raw, type, created=old is None)
    if old is not None:
        causes += metadata.new_finalizer_faults(raw, old)
    broken = schema.validate(type.schema, raw)
    if not type.custom:  # of built-in lists, each type's own rules say what may not be there twice
        broken = [cause for cause in broken if cause.reason != "FieldValueDuplicate"]
    causes += broken
    mistyped = [cause for cause in causes if cause.reason == "FieldValueTypeInvalid"]
    if type.check is not None and not mistyped:  # rules may rely on the types
        causes += type.check(raw, old)
    if mistyped and not type.custom:
        raise _undecodable(type, mistyped[0])
    if causes:
        raise statuses.invalid(type.kind, raw["metadata"].get("name", ""), causes)


_MAP_KEY = re.compile(r"^(data|stringData|binaryData|parameters)\..*$")
_GO_TYPES = {"boolean": "bool", "integer": "number", "null": "null"}


def _undecodable(type: Type, cause: statuses.Cause) -> KubeError:
    """A wrong type in a built-in object is no broken rule: Go cannot even decode it."""
    found, _, wanted = cause.text.partition(" in body must be of type ")
    found = found.split('"')[1]
    wanted = wanted.split(":")[0]
    # Go names the field, not the key of a map within it.
    field = f"{type.kind.kind}.{_MAP_KEY.sub(lambda found: found[1], cause.field)}"
    return statuses.bad_request(
        f'{type.kind.kind} in version "{type.kind.version}" cannot be handled as a {type.kind.kind}: json: cannot '
        f"unmarshal {_GO_TYPES.get(found, found)} into Go struct field {field} of type {wanted}"
    )


async def ask(
    core: Core,
    type: Type,
    call: Call,
    verb: Literal["create", "update", "delete"],
    raw: Raw | None,
    old: Entry | None,
) -> Raw | None:
    """Pass the write by every admission hook."""
    if not core.hooks and not core.guards:
        return raw
    seen = raw if raw is not None else (old.raw if old else {})
    operation = Operation(
        verb=verb,
        kind=type.kind,
        namespace=seen.get("metadata", {}).get("namespace", "") or call.target.namespace,
        name=seen.get("metadata", {}).get("name", "") or call.target.name,
        subresource=call.target.subresource,
        object=raw,
        old=old.copy() if old else None,
        caller=call.caller,
        dry_run=call.dry_run,
    )
    return await admit([*core.hooks, *core.guards], operation)


def _split_status(type: Type, new: Raw, old: Raw, subresource: str) -> Raw:
    """Keep of `new` what this URL may change: all but status, or status alone."""
    if subresource == "status":
        made = {**old, "metadata": dict(old["metadata"])}
        if not type.custom:
            for name in ("labels", "annotations", "finalizers"):
                made["metadata"].pop(name, None)
                if name in new["metadata"]:
                    made["metadata"][name] = new["metadata"][name]
        made.pop("status", None)
    else:
        made = {name: value for name, value in new.items() if name != "status"}
    source = new if subresource == "status" else old
    if "status" in source:
        made["status"] = source["status"]
    return made


_NOT_SPEC = frozenset({"apiVersion", "kind", "metadata"})


def _counted(type: Type, new: Raw, old: Raw) -> None:
    """Raise the generation when what the user wants has changed."""
    if "generation" not in old["metadata"]:
        return
    ignored = _NOT_SPEC | {"status"} if type.has_status else _NOT_SPEC
    wanted = {name: value for name, value in new.items() if name not in ignored}
    before = {name: value for name, value in old.items() if name not in ignored}
    if wanted != before:
        new["metadata"]["generation"] = old["metadata"]["generation"] + 1


def _without_version(raw: Raw) -> Raw:
    return {
        **raw,
        "metadata": {name: value for name, value in raw["metadata"].items() if name != "resourceVersion"},
    }


async def rewrite(
    core: Core, type: Type, call: Call, old: Entry, was: Entry, new: Raw, *, managed: list[Raw] | None = None
) -> Entry:
    """Carry out the change of `old` (as stored in `was`) into `new`, the caller's own dict. May raise Stale.

    `old` is in the form of `type`, `was` in stored form; they differ only where versions do.
    `managed` are the field managers after an apply; other writes keep the record on their own.
    """
    new = clean(type, new, call)
    metadata.place(new, type, old.raw["metadata"].get("namespace", ""))
    metadata.carry_over(new, old.raw, type)
    if type.has_status:
        # A copy: hooks and defaults change the new object in place, and must not reach the stored one.
        new = _split_status(type, new, old.copy(), call.target.subresource)
    call.warnings += metadata.tidy_owners(new)
    asked = await ask(core, type, call, "update", new, old)
    assert asked is not None
    new = asked
    schema.default(type.schema, new)
    # After the mutators: what they put back was not changed by the caller.
    _counted(type, new, old.raw)
    check(type, new, old.raw)
    _record_managers(core, type, call, old.raw, new, managed)
    stored = kept(type, new)
    if _without_version(stored) == _without_version(was.raw):
        return was
    if call.dry_run:
        return Entry(was.key, was.rev, stored)
    leaving = new["metadata"].get("deletionTimestamp") and not new["metadata"].get("finalizers")
    if leaving and not _holds_back(type, new):
        gone = await core.store.commit(was.key, None, was.rev)
        return Entry(
            was.key,
            gone.rev,
            {**stored, "metadata": {**stored["metadata"], "resourceVersion": str(gone.rev)}},
        )
    return await core.store.commit(was.key, stored, was.rev)


def _record_managers(
    core: Core, type: Type, call: Call, old: Raw, new: Raw, managed: list[Raw] | None
) -> None:
    """Keep the record of who owns what, for objects that have one."""
    if managed is not None:
        new["metadata"]["managedFields"] = managed
    elif "managedFields" in old["metadata"]:
        writer = Manager(call.manager, "Update", type.kind.api_version, call.target.subresource, core.stamp())
        note_update(type.schema, old, new, writer)


def _holds_back(type: Type, raw: Raw) -> bool:
    """Namespaces stay until their own finalizers, in spec, are gone; pods until their kubelet has ended them."""
    if type.kind == POD and raw["metadata"].get("deletionGracePeriodSeconds"):
        return True
    return type.kind.plural == "namespaces" and bool((raw.get("spec") or {}).get("finalizers"))


__all__ = ["ATTEMPTS", "Stale", "ask", "check", "clean", "rewrite"]
