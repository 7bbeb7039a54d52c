"""Renders the CRD of a machine config kind from a driver's create flags, by Rancher's rules (reference/01 §5.6).

`--digitalocean-ssh-key-path` becomes the field `sshKeyPath` of `DigitaloceanConfig`, at the top level of the object.
The fields of HarvesterConfig follow the same rules, but its CRD is the node driver's own (windrow.nodedriver.schema),
which accepts structured YAML, too.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from windrow.core.formats.json import dumps
from windrow.drivers.api import NO_FIELD_ANNOTATIONS, Fault, FieldAnnotations, machine_config
from windrow.kubernetes.objects import Raw, annotations_of, is_deleting, labels_of, new_crd
from windrow.kubernetes.resources import ApiResource
from windrow.protocols.dockermachine import Flag, config_field_of

# Rancher's label on the CRDs of a driver.
DRIVER_LABEL = "io.cattle.node_driver.name"
SOURCE_ANNOTATION = "windrow.io/made-from"
REVISION_ANNOTATION = "windrow.io/schema-revision"
REVISION = "2"

MAX_FLAGS = 1000
_FLAG = re.compile(r"[^-]*(-[^-]+)+")
_FIELD = re.compile(r"[A-Za-z0-9_.]{1,200}")
# Fields of every Kubernetes object.
_RESERVED_FIELDS = frozenset({"apiVersion", "kind", "metadata", "status"})
_OPEN = {"type": "object", "nullable": True, "x-kubernetes-preserve-unknown-fields": True}
# Set by Rancher, beside the driver's create flags; without effect here.
_RANCHERS = {"common": _OPEN, "providerID": {"type": "string", "nullable": True}, "status": _OPEN}
_SECRET_NAMES = frozenset({"sshKeyContents", "sshKey", "privateKeyFile"})


Type = Literal["string", "password", "boolean", "array[string]"]


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a machine config kind, as in Rancher's DynamicSchema. `default` is None for none."""

    name: str
    type: Type
    flag: str
    description: str = ""
    default: str | bool | tuple[str, ...] | None = None


def machine_config_kind(driver: str) -> ApiResource:
    """The machine config kind of a driver: `harvester` has HarvesterConfig."""
    return machine_config(f"{driver[:1].upper()}{driver[1:]}Config")


def get_field(flag: str) -> str:
    """The field of a create flag: `harvester-enable-efi` -> `enableEfi`. Raises Fault."""
    name = config_field_of(flag)
    if not _FLAG.fullmatch(flag) or not _FIELD.fullmatch(name):
        raise _invalid_schema(f"its create flag {flag[:80]!r} is not of the form DRIVER-NAME")
    return name


def read_fields(
    flags: Iterable[Flag], field_annotations: FieldAnnotations = NO_FIELD_ANNOTATIONS
) -> tuple[Field, ...]:
    """The fields of these flags, in the driver's order. Raises Fault where they make no valid kind."""
    fields: dict[str, Field] = {}
    for flag in flags:
        made = _field(flag, field_annotations)
        if made.name in _RESERVED_FIELDS:
            raise _invalid_schema(
                f"its create flag {flag.name!r} would be the field {made.name!r}, which is reserved"
            )
        if made.name in fields:
            other = fields[made.name].flag
            raise _invalid_schema(
                f"its create flags {other!r} and {flag.name!r} would both be the field {made.name!r}"
            )
        fields[made.name] = made
    if len(fields) > MAX_FLAGS:
        raise _invalid_schema(f"it has {len(fields)} create flags, more than {MAX_FLAGS}")
    return tuple(fields.values())


def _field(flag: Flag, field_annotations: FieldAnnotations) -> Field:
    name = get_field(flag.name)
    usage = str(flag.usage or "")
    text: Type = (
        "password"
        if name in field_annotations.private | field_annotations.passwords | _SECRET_NAMES
        else "string"
    )
    match flag.kind, flag.default:
        case "string", value:
            return Field(
                name, text, flag.name, usage, field_annotations.defaults.get(name, str(value or "")) or None
            )
        case "int", value:
            return Field(name, text, flag.name, usage, field_annotations.defaults.get(name, str(value or 0)))
        case "bool", _:
            return Field(name, "boolean", flag.name, usage)
        case "strings", tuple() | list() as several:
            return Field(name, "array[string]", flag.name, usage, tuple(map(str, several)) or None)
    raise _invalid_schema(f"its create flag {flag.name!r} has the unknown type {flag.kind!r}")


def schema_source(checksum: str, field_annotations: FieldAnnotations = NO_FIELD_ANNOTATIONS) -> str:
    """The value of the source annotation: it changes when the CRD has to change."""
    if field_annotations == NO_FIELD_ANNOTATIONS:
        return checksum
    annotations = [
        sorted(field_annotations.private),
        sorted(field_annotations.passwords),
        sorted(field_annotations.defaults.items()),
    ]
    return f"{checksum}+{hashlib.sha256(dumps(annotations)).hexdigest()[:16]}"


def render_crd(driver: str, fields: Sequence[Field], source: str) -> Raw:
    """The CRD of the driver's machine config kind. `source` goes to its source annotation."""
    schema = {
        "type": "object",
        "description": f"Configuration of the machines of a pool for the node driver {driver}.",
        "properties": {**_RANCHERS, **{field.name: render_field(field) for field in fields}},
    }
    return new_crd(
        machine_config_kind(driver),
        schema,
        [("Age", "date", ".metadata.creationTimestamp")],
        labels={DRIVER_LABEL: driver},
        annotations={SOURCE_ANNOTATION: source, REVISION_ANNOTATION: REVISION},
    )


def render_field(field: Field) -> dict[str, Any]:
    """One property of the schema."""
    shape: dict[str, Any]
    match field.type:
        case "boolean":
            shape = {"type": "boolean", "nullable": True}
        case "array[string]":
            shape = {"type": "array", "nullable": True, "items": {"type": "string", "nullable": True}}
        case "password":
            shape = {"type": "string", "nullable": True, "format": "password"}
        case _:
            shape = {"type": "string", "nullable": True}
    if field.default is not None:
        shape["default"] = list(field.default) if isinstance(field.default, tuple) else field.default
    return {"description": field.description, **shape} if field.description else shape


def is_generated(crd: Mapping[str, Any]) -> bool:
    """Whether the controller created this CRD."""
    return SOURCE_ANNOTATION in annotations_of(crd)


def find_source_checksum(crd: Mapping[str, Any]) -> str | None:
    """The driver checksum in the source annotation; None where the controller did not create the CRD."""
    return annotations_of(crd)[SOURCE_ANNOTATION].partition("+")[0] if is_generated(crd) else None


def is_current(crd: Mapping[str, Any] | None, driver: str, source: str) -> bool:
    """Whether the CRD is the one that would be rendered now from that source."""
    if crd is None or is_deleting(crd):
        return False
    annotations = annotations_of(crd)
    made = (
        labels_of(crd).get(DRIVER_LABEL),
        annotations.get(SOURCE_ANNOTATION),
        annotations.get(REVISION_ANNOTATION),
    )
    return made == (driver, source, REVISION)


def _invalid_schema(message: str) -> Fault:
    return Fault(message, "report it to the driver's maintainers", "InvalidCreateFlags")
