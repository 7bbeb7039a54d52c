"""Validators of key pairs, template versions, Harvester's ResourceQuotas and Secrets (v1.8.1; reference 05 §3.3)."""

from __future__ import annotations

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
