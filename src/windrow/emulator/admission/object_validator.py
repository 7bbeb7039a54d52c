"""Validators of key pairs, template versions, Harvester's ResourceQuotas and Secrets (v1.8.1; reference 05 §3.3)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from windrow.apiserver.types.go_syntax import kind_of, syntax_error
from windrow.core.formats.json import NotJson, loads
from windrow.emulator import names
from windrow.emulator.admission.denials import MUTATOR, bad_request, internal, invalid, not_allowed
from windrow.emulator.admission.kubevirt.causes import section, text, texts
from windrow.emulator.host.keypairs import InvalidPublicKey, fingerprint
from windrow.emulator.kit.listers import Key, Listers, key_of
from windrow.kubernetes.objects import Raw, name_of, namespace_of, nested


def check_key_pair(pair: Raw) -> None:
    key = nested(pair, "spec", "publicKey", default="")
    if not key:
        raise invalid("public key is required", "spec.publicKey")
    try:
        fingerprint(key)
    except InvalidPublicKey as error:
        raise invalid(str(error), "spec.publicKey") from error


def check_snapshot_quota(quota: Raw, old: Raw | None) -> None:
    if old is None and name_of(quota) != "default-resource-quota":
        raise invalid("name must be default-resource-quota", "name")
    for vm, size in section(quota, "spec", "snapshotLimit", "vmTotalSnapshotSizeQuota").items():
        if isinstance(size, int) and size < 0:
            field = f"spec.snapshotLimit.vmTotalSnapshotSizeQuota[{vm}]"
            raise invalid("must be greater than or equal to 0", field)


# --- settings ----------------------------------------------------------------------------------------------------------

_TTL = "kubeconfig-default-token-ttl-minutes"
LONGEST_TTL_MINUTES = 52_560_000  # 100 years
HOTPLUG_RATIOS = (1, 20)
OVERHEAD_RATIOS = (1, 10)


def check_setting(setting: Raw) -> None:
    """The default and the value of those settings whose value is a number or decides where machines run."""
    check = _SETTINGS.get(name_of(setting))
    for field in ("default", "value") if check else ():
        written = text(setting, field)
        if written and check:
            check(field, written)


def _refuse(why: str, field: str) -> None:
    if why:
        raise invalid(why, field)


def _number_fault(written: str) -> str:
    if (len(written) > 1 and written[0] == "0") or (written.startswith("-0") and len(written) > 1):
        return f"leading zero in input: {written}"
    if len(written) > 1 and written[0] == "+":
        return f"no allowed symbol in input: {written}"
    if re.fullmatch(r"[+-]?[0-9]+", written, re.ASCII) is None:
        return f'strconv.Atoi: parsing "{written}": invalid syntax'
    if not -(2**63) <= int(written[:32]) < 2**63 or len(written) > 32:
        return f'strconv.Atoi: parsing "{written}": value out of range'
    return ""


def _check_seconds(field: str, written: str) -> None:
    _refuse(_number_fault(written) or ("can't be negative" if int(written) < 0 else ""), field)


def _check_bundle_timeout(field: str, written: str) -> None:
    _refuse(_number_fault(written) or ("timeout can't be negative" if int(written) < 0 else ""), field)


def _check_ttl(field: str, written: str) -> None:
    _refuse(_number_fault(written), field)
    if int(written) < 0:
        raise invalid(f"{_TTL} can't be negative", field)
    if int(written) > LONGEST_TTL_MINUTES:
        raise invalid(f"{_TTL} exceeds 100 years", field)


def _check_overcommit(field: str, written: str) -> None:
    found = _json_of(written)
    found = {key.lower(): value for key, value in found.items()} if isinstance(found, dict) else found
    found = {} if found is None else found
    if not isinstance(found, dict) or not all(_is_int(found.get(word, 0)) for word in _OVERCOMMITTED):
        raise invalid(f"Invalid JSON: {written}", field)
    for word in _OVERCOMMITTED:
        percentage = found.get(word) or 0
        if percentage < 100:
            why = f"Cannot undercommit. Should be greater than or equal to 100 but got {percentage}"
            raise invalid(why, word)


_OVERCOMMITTED = ("cpu", "memory", "storage")


def _is_int(value: object) -> bool:
    return value is None or (isinstance(value, int) and not isinstance(value, bool))


def _json_of(written: str) -> object:
    try:
        return loads(written)
    except NotJson:
        return ""


_FLOAT = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?", re.ASCII)


def _check_overhead(field: str, written: str) -> None:
    ratio = float(written) if _FLOAT.fullmatch(written) else None
    if ratio is None:
        why = f'strconv.ParseFloat: parsing "{written}": invalid syntax'
        raise invalid(f"value {written} can't be converted to float64, error:{why}", field)
    least, most = OVERHEAD_RATIOS
    if ratio < least and ratio != 0:
        raise invalid(f"value {written} can't be less than {least}", field)
    if ratio > most:
        raise invalid(f"value {written} can't be greater than {most}", field)


def _check_hotplug_ratio(field: str, written: str) -> None:
    least, most = HOTPLUG_RATIOS
    if re.fullmatch(r"[0-9]+", written, re.ASCII) is None:
        why = f'strconv.ParseUint: parsing "{written}": invalid syntax'
        raise internal(f"failed to parse {field}: {written} {why}")
    if len(written) > 10 or int(written) >= 2**32:
        why = f'strconv.ParseUint: parsing "{written}": value out of range'
        raise internal(f"failed to parse {field}: {written} {why}")
    if not least <= int(written) <= most:
        raise internal(f"{field}: {written} must be in range [{least} .. {most}]")


def _check_reset_policy(field: str, written: str) -> None:
    try:
        policy = loads(written)
    except NotJson:
        why = syntax_error(written)
        raise invalid(f"unmarshal failed, error: {why}, value: {written}", field) from None
    if not isinstance(policy, dict | None):
        why = f"json: cannot unmarshal {kind_of(policy)} into Go value of type settings.VMForceResetPolicy"
        raise invalid(f"unmarshal failed, error: {why}, value: {written}", field)
    period, timeout = (nested(policy, word) or 0 for word in ("period", "vmMigrationTimeout"))
    if _is_int(period) and period <= 0:
        raise invalid(f"period value should be greater than 0, value: {period}", field)
    if _is_int(timeout) and timeout < 0:
        raise invalid(f"vmMigrationTimeout value should be greater than 0, value: {timeout}", field)


_SETTINGS: Mapping[str, Callable[[str, str], None]] = {
    "overcommit-config": _check_overcommit,
    "additional-guest-memory-overhead-ratio": _check_overhead,
    "max-hotplug-ratio": _check_hotplug_ratio,
    "default-vm-termination-grace-period-seconds": _check_seconds,
    "support-bundle-timeout": _check_bundle_timeout,
    _TTL: _check_ttl,
    "vm-force-reset-policy": _check_reset_policy,
}


# --- template versions -------------------------------------------------------------------------------------------------

_LIMITS = "spec.vm.spec.template.spec.domain.resources.limits"


def _key(name: str) -> Key:
    namespace, slash, rest = name.partition("/")
    return (namespace, rest) if slash else ("", name)


def mutate_template_version(version: Raw) -> None:
    """A version without a name is named after its template."""
    template = text(version, "spec", "templateId")
    if not template:
        raise invalid("TemplateId is empty", "spec.templateId", MUTATOR)
    if not version["metadata"].get("name"):
        version["metadata"]["generateName"] = f"{_key(template)[1]}-"


def check_template_version(version: Raw, listers: Listers) -> None:
    key = _key(text(version, "spec", "templateId"))
    if key[0] != namespace_of(version):
        why = "Template version and template should reside in the same namespace"
        raise invalid(why, "metadata.namespace")
    if key not in listers.templates:
        why = f'virtualmachinetemplates.harvesterhci.io "{key[1]}" not found'
        raise invalid(why, "spec.templateId")
    for place, pair in enumerate(texts(version, "spec", "keyPairIds")):
        if _key(pair) not in listers.key_pairs:
            why = f'keypairs.harvesterhci.io "{_key(pair)[1]}" not found'
            raise invalid(f"KeyPairID {pair} is invalid, {why}", f"spec.keyPairIds[{place}]")
    written = text(version, "spec", "vm", "metadata", "annotations", names.CLAIM_TEMPLATES)
    if written and not _is_list_of_objects(written):
        field = f'spec.vm.metadata.annotations["{names.CLAIM_TEMPLATES}"]'
        raise invalid(f"Invalid JSON data in annotation {names.CLAIM_TEMPLATES}", field)
    template = nested(version, "spec", "vm", "spec", "template")
    if template is None:
        return
    limits = section(template, "spec", "domain", "resources", "limits")
    if not limits:
        why = "CPU and Memory limits are required fields, but are missing from the input"
        raise invalid(why, _LIMITS)
    for kind, word in (("memory", "Memory"), ("cpu", "CPU")):
        if kind not in limits:
            raise invalid(f"{word} limit is an required field, but is missing from the input", _LIMITS)


def _is_list_of_objects(written: str) -> bool:
    try:
        found = loads(written)
    except NotJson:
        return False
    return found is None or (isinstance(found, list) and all(isinstance(one, dict) for one in found))


def refuse_template_version_change() -> None:
    raise not_allowed("Update templateVersion is not supported")


def check_template_version_removal(version: Raw, listers: Listers) -> None:
    """The default version of a template stays."""
    key = _key(text(version, "spec", "templateId"))
    template = listers.templates.get(key)
    if template is None:
        raise internal(f'virtualmachinetemplates.harvesterhci.io "{key[1]}" not found')
    if text(template, "spec", "defaultVersionId") == "/".join(key_of(version)):
        raise bad_request("Cannot delete the default templateVersion")
