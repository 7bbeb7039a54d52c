"""What KubeVirt's own types and schema do to a template's spec, in its mutator (v1.7.0)."""

from __future__ import annotations

from collections.abc import Iterator

from windrow.emulator.admission.kubevirt.causes import Cause, objects, section, text
from windrow.emulator.kit.go_decoding import kind_of
from windrow.kubernetes.objects import Raw, nested

TEMPLATE = "spec.template.spec"
# Types of the fields that rules read, with "*" for each element of a list, in the order in which Go meets them.
GO_TYPES: tuple[tuple[str, str], ...] = (
    ("architecture", "string"),
    ("domain.cpu.cores", "uint32"),
    ("domain.cpu.dedicatedCpuPlacement", "bool"),
    ("domain.cpu.isolateEmulatorThread", "bool"),
    ("domain.cpu.maxSockets", "uint32"),
    ("domain.cpu.model", "string"),
    ("domain.cpu.sockets", "uint32"),
    ("domain.cpu.threads", "uint32"),
    ("domain.devices.disks.*.bootOrder", "uint"),
    ("domain.devices.disks.*.dedicatedIOThread", "bool"),
    ("domain.devices.disks.*.name", "string"),
    ("domain.devices.disks.*.serial", "string"),
    ("domain.devices.disks.*.shareable", "bool"),
    ("domain.devices.interfaces.*.bootOrder", "uint"),
    ("domain.devices.interfaces.*.macAddress", "string"),
    ("domain.devices.interfaces.*.model", "string"),
    ("domain.devices.interfaces.*.name", "string"),
    ("domain.devices.interfaces.*.pciAddress", "string"),
    ("domain.machine.type", "string"),
    ("hostname", "string"),
    ("networks.*.multus.networkName", "string"),
    ("networks.*.name", "string"),
    ("subdomain", "string"),
    ("terminationGracePeriodSeconds", "int64"),
    ("volumes.*.name", "string"),
    ("volumes.*.persistentVolumeClaim.claimName", "string"),
    ("volumes.*.persistentVolumeClaim.hotpluggable", "bool"),
)
LARGEST = {"uint32": (0, 2**32 - 1), "uint": (0, 2**64 - 1), "int64": (-(2**63), 2**63 - 1)}


def type_fault(spec: Raw) -> str:
    """What Go says of the first field whose value is of another type; "" where all fit."""
    for path, wanted in GO_TYPES:
        for value in _values(spec, path.split(".")):
            if value is not None and (shown := _misfit(value, wanted)):
                field = f"VirtualMachineInstanceTemplateSpec.{TEMPLATE}.{path.replace('.*', '')}"
                return f"json: cannot unmarshal {shown} into Go struct field {field} of type {wanted}"
    return ""


def _values(here: object, steps: list[str]) -> Iterator[object]:
    if not steps:
        yield here
    elif steps[0] == "*":
        for one in here if isinstance(here, list) else ():
            yield from _values(one, steps[1:])
    elif isinstance(here, dict):
        yield from _values(here.get(steps[0]), steps[1:])


def _misfit(value: object, wanted: str) -> str:
    kind = kind_of(value)
    if wanted in ("string", "bool"):
        return "" if kind == wanted else kind
    if kind != "number":
        return kind
    least, most = LARGEST[wanted]
    return "" if isinstance(value, int) and least <= value <= most else f"number {value}"


# Fields that Go writes though they are empty, and fields that it leaves out then.
ALWAYS: tuple[tuple[tuple[str, ...], str], ...] = (
    (("domain", "devices", "gpus"), "name"),
    (("domain", "devices", "hostDevices"), "name"),
    (("domain", "devices", "hostDevices"), "deviceName"),
)
NODE_OPERATORS = ("DoesNotExist", "Exists", "Gt", "In", "Lt", "NotIn")
TERMS = ("requiredDuringSchedulingIgnoredDuringExecution", "preferredDuringSchedulingIgnoredDuringExecution")
DNS_POLICIES = ("ClusterFirst", "ClusterFirstWithHostNet", "Default", "None")


def write_as_go(spec: Raw) -> None:
    """The spec as it is after a round trip through Go's types. May be repeated."""
    for path, key in ALWAYS:
        for one in objects(spec, *path):
            one.setdefault(key, "")
    watchdog = section(spec, "domain", "devices", "watchdog")
    if watchdog:
        watchdog.setdefault("name", "")
    for volume in objects(spec, "volumes"):
        if volume.get("containerDisk") is not None:
            volume["containerDisk"].setdefault("image", "")
        if volume.get("persistentVolumeClaim") is not None:
            volume["persistentVolumeClaim"].setdefault("claimName", "")
    for disk in objects(spec, "domain", "devices", "disks"):
        for kind in ("disk", "cdrom", "lun"):
            target = section(disk, kind)
            for key in ("bus", "pciAddress"):
                if target.get(key) == "":
                    del target[key]


def schema_causes(spec: Raw) -> Iterator[Cause]:
    """Of the few values that the schema enumerates and the rules do not meet first. Without a field or a reason."""
    if nested(spec, "domain", "devices") is None:
        yield _cause(f"{TEMPLATE}.domain.devices in body is required")
    for one in objects(spec, "tolerations"):
        yield from _listed(one, "operator", ("Equal", "Exists"), f"{TEMPLATE}.tolerations")
        yield from _listed(
            one, "effect", ("NoExecute", "NoSchedule", "PreferNoSchedule"), f"{TEMPLATE}.tolerations"
        )
    yield from _listed(spec, "dnsPolicy", DNS_POLICIES, TEMPLATE)
    node = section(spec, "affinity", "nodeAffinity")
    at = f"{TEMPLATE}.affinity.nodeAffinity"
    for term in objects(node, TERMS[0], "nodeSelectorTerms"):
        yield from _operators(term, f"{at}.{TERMS[0]}.nodeSelectorTerms")
    for term in objects(node, TERMS[1]):
        yield from _operators(section(term, "preference"), f"{at}.{TERMS[1]}.preference")


def _operators(term: Raw, at: str) -> Iterator[Cause]:
    for kind in ("matchExpressions", "matchFields"):
        for one in objects(term, kind):
            yield from _listed(one, "operator", NODE_OPERATORS, f"{at}.{kind}")


def _listed(raw: Raw, key: str, known: tuple[str, ...], at: str) -> Iterator[Cause]:
    value = text(raw, key)
    if value and value not in known:
        yield _cause(f"{at}.{key} in body should be one of [{' '.join(known)}]")


def _cause(message: str) -> Cause:
    return Cause(message, "", "")
