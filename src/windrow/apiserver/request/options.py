"""Query parameters by their types: what `metav1.ListOptions`, `DeleteOptions` and the options of writes decode (reference/05 §7.1).

kube-apiserver decodes all parameters of a verb before the verb, whichever of them it will use, so that a mistyped one is
never ignored in silence.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from windrow.apiserver import apierrors
from windrow.apiserver.apierrors import Cause
from windrow.apiserver.request.info import ApiCall
from windrow.kubernetes.requests import APPLY_PATCH

MAX_FIELD_MANAGER_BYTES = 128
_LIST = ("limit", "timeoutSeconds")
_INTEGERS: dict[str, tuple[str, ...]] = {
    "list": _LIST,
    "watch": _LIST,
    "deletecollection": (*_LIST, "gracePeriodSeconds"),
    "delete": ("gracePeriodSeconds",),
}
_KINDS = {"create": "CreateOptions", "update": "UpdateOptions", "patch": "PatchOptions"}
_DIGITS = re.compile(r"[0-9]{1,20}\Z")
_INTEGER = re.compile(r"[+-]?[0-9]+\Z")


def options_kind(verb: str) -> str:
    """The kind that the options of a writing verb are decoded as."""
    return _KINDS.get(verb, "DeleteOptions")


def parse_int64(text: str) -> int:
    """strconv.ParseInt. Raises 400."""
    if not _INTEGER.match(text):
        raise apierrors.bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax')
    number = int(text) if len(text) <= 20 else 2**64
    if not -(2**63) <= number < 2**63:
        raise apierrors.bad_request(f'strconv.ParseInt: parsing "{text}": value out of range')
    return number


def read_int(options: Mapping[str, str], name: str) -> int | None:
    """An integer parameter; None when not given. Raises 400."""
    return parse_int64(options[name]) if name in options else None


def read_version(options: Mapping[str, str]) -> int | None:
    """The resourceVersion asked for; None when not given. 400 for what is no number."""
    text = options.get("resourceVersion", "")
    if not text:
        return None
    number = int(text) if _DIGITS.match(text) else -1
    if 0 <= number < 2**64:
        return number
    why = "value out of range" if text.isascii() and text.isdigit() else "invalid syntax"
    raise apierrors.bad_request(
        f'invalid resource version: resourceVersion: Invalid value: "{text}": strconv.ParseUint: parsing "{text}": {why}'
    )


def check_options(call: ApiCall) -> None:
    """Raises 400 and 422 for a parameter of a wrong type or an invalid value, whether the verb will use it or not."""
    for name in _INTEGERS.get(call.verb, ()):
        read_int(call.options, name)
    if call.verb in ("get", "list", "watch"):
        read_version(call.options)
        return
    causes = [*_check_dry_run(call, []), *_check_manager(call)]
    if call.verb == "patch" and "force" in call.options and call.media_type != APPLY_PATCH:
        causes.append(apierrors.forbidden_value("force", "may not be specified for non-apply patch"))
    if causes:
        raise apierrors.invalid_options(options_kind(call.verb), causes[0])


def check_dry_run(call: ApiCall) -> None:
    """Raises 422 for a dryRun of decoded DeleteOptions, or of the query, other than `All`."""
    for cause in _check_dry_run(call, call.delete_options.get("dryRun") or []):
        raise apierrors.invalid_options("DeleteOptions", cause)


def _check_dry_run(call: ApiCall, sent: list[str]) -> list[Cause]:
    values = [*([call.options["dryRun"]] if "dryRun" in call.options else ()), *sent]
    wrong = any(value != "All" for value in values)
    return [apierrors.not_supported("dryRun", values, ("All",))] if wrong else []


def _check_manager(call: ApiCall) -> list[Cause]:
    """The rules of a field manager's name, which is stored in the object with each of its fields."""
    if call.verb not in _KINDS:
        return []
    name = call.options.get("fieldManager", "")
    if len(name.encode(errors="replace")) > MAX_FIELD_MANAGER_BYTES:
        text = f"Too long: may not be more than {MAX_FIELD_MANAGER_BYTES} bytes"
        return [Cause("fieldManager", "FieldValueTooLong", text)]
    for at, character in enumerate(name):
        if not character.isprintable():
            text = f"invalid character U+{ord(character):04X} (at position {at})"
            return [apierrors.invalid_value("fieldManager", name, text)]
    return []
