"""KubeVirt's rules of CPU, memory, machine and firmware (v1.7.0, as Harvester 1.8 configures it).

Harvester leaves the roll-out strategy LiveUpdate, so the guest's memory may exceed the limit here, and the sockets are
compared with their maximum twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase

from windrow.core.formats.quantity import WRONG_FORM
from windrow.emulator.admission.kubevirt.causes import (
    FORBIDDEN,
    NOT_SUPPORTED,
    REQUIRED,
    Cause,
    Rule,
    flag,
    has,
    objects,
    quantity,
    section,
    text,
    whole,
)
from windrow.emulator.quantities import Quantity
from windrow.kubernetes.objects import Raw, nested

NOT_NEGATIVE = "{} '{}': must be greater than or equal to 0."
LEAST_MEMORY = 10**6
MACHINES = {"arm64": ("virt*",), "s390x": ("s390-ccw-virtio*",)}
MACHINES_OF_AMD64 = ("q35*", "pc-q35*")
CPU_FEATURE_POLICIES = ("", "force", "require", "optional", "disable", "forbid")


def _resource(spec: Raw, kind: str, name: str) -> Quantity:
    return quantity(spec, "domain", "resources", kind, name)


def _requests(at: str, name: str) -> str:
    return f"{at}.domain.resources.requests.{name}"


def _limits(at: str, name: str) -> str:
    return f"{at}.domain.resources.limits.{name}"


# --- memory -----------------------------------------------------------------------------------------------------


def _memory_requests(spec: Raw, at: str) -> Iterator[Cause]:
    requested, field = _resource(spec, "requests", "memory"), _requests(at, "memory")
    if requested.whole < 0:
        yield Cause(NOT_NEGATIVE.format(field, requested), field)
    elif requested.whole > 0 and requested.number < LEAST_MEMORY:
        yield Cause(f"{field} '{requested}': must be greater than or equal to 1M.", field)


def _memory_limits(spec: Raw, at: str) -> Iterator[Cause]:
    limit, requested = _resource(spec, "limits", "memory"), _resource(spec, "requests", "memory")
    field = _limits(at, "memory")
    if limit.whole < 0:
        yield Cause(NOT_NEGATIVE.format(field, limit), field)
    if limit.whole > 0 and requested.whole > limit.whole:
        asked = _requests(at, "memory")
        yield Cause(f"{asked} '{requested}' is greater than {field} '{limit}'", asked)


def _hugepages(spec: Raw, at: str) -> Iterator[Cause]:
    pages = nested(spec, "domain", "memory", "hugepages")
    if pages is None:
        return
    size_field, field = f"{at}.domain.hugepages.size", _requests(at, "memory")
    written = text(pages, "pageSize")
    size = Quantity.find(written)
    if size is None:
        yield Cause(f"{size_field} '{written}': {WRONG_FORM}", size_field)
        return
    requested = _resource(spec, "requests", "memory")
    memory = requested.whole or quantity(spec, "domain", "memory", "guest").whole
    memory = memory or _resource(spec, "limits", "memory").whole
    if memory and memory < size.whole:
        why = f"must be equal to or larger than page size {size_field} '{written}'"
        yield Cause(f"{field} '{requested}' {why}", field)
    elif size.whole and memory % size.whole:
        yield Cause(
            f"{field} '{requested}' is not a multiple of the page size {size_field} '{written}'", field
        )


def kubevirt_panics(spec: Raw) -> bool:
    """On pinned CPUs of a guest whose memory nothing says, and on huge pages of size zero."""
    pages = nested(spec, "domain", "memory", "hugepages")
    if pages is not None:
        size = Quantity.find(text(pages, "pageSize"))
        return size is not None and not size.whole
    memory = (_resource(spec, kind, "memory").whole for kind in ("limits", "requests"))
    return _is_pinned(spec) and not any(memory) and nested(spec, "domain", "memory", "guest") is None


# --- machine and architecture -------------------------------------------------------------------------------------


def _machine(spec: Raw, at: str) -> Iterator[Cause]:
    machine = text(spec, "domain", "machine", "type")
    known = MACHINES.get(text(spec, "architecture"), MACHINES_OF_AMD64)
    if machine and not any(fnmatchcase(machine, pattern) for pattern in known):
        field = f"{at}.domain.machine.type"
        listed = " ".join(known)
        yield Cause(f"{field} is not supported: {machine} (allowed values: [{listed}])", field)


def architecture(spec: Raw, at: str) -> Iterator[Cause]:
    if text(spec, "architecture") not in ("", "amd64"):
        field = f"{at}.architecture"
        why = f"MultiArchitecture feature gate is not enabled in kubevirt-config, invalid entry {field}"
        yield Cause(why, field, REQUIRED)


def _acpi(spec: Raw, at: str) -> Iterator[Cause]:
    acpi = nested(spec, "domain", "firmware", "acpi")
    if acpi is None:
        return
    field = f"{at}.acpi"
    references = [(key, text(acpi, key)) for key in ("slicNameRef", "msdmNameRef")]
    if not any(name for _, name in references):
        yield Cause("ACPI was set but no SLIC nor MSDM volume reference was set", field)
        return
    volumes = {one.get("name"): one for one in reversed(objects(spec, "volumes"))}
    for key, name in references:
        if name and name not in volumes:
            yield Cause(f"{field} does not have a matching Volume.", f"{field}.{key}")
        elif name and not has(volumes[name], "secret"):
            yield Cause(f"{field} refers to Volume of unsupported type.", f"{field}.{key}")


# --- CPU --------------------------------------------------------------------------------------------------------


def _cpu_requests(spec: Raw, at: str) -> Iterator[Cause]:
    requested = _resource(spec, "requests", "cpu")
    if requested.milli < 0:
        yield Cause(NOT_NEGATIVE.format(_requests(at, "cpu"), requested), _requests(at, "cpu"))


def _cpu_limits(spec: Raw, at: str) -> Iterator[Cause]:
    limit, requested = _resource(spec, "limits", "cpu"), _resource(spec, "requests", "cpu")
    field, asked = _limits(at, "cpu"), _requests(at, "cpu")
    if limit.milli < 0:
        yield Cause(NOT_NEGATIVE.format(field, limit), field)
    if limit.milli > 0 and requested.milli > limit.milli:
        yield Cause(f"{asked} '{requested}' is greater than {field} '{limit}'", asked)


def _is_pinned(spec: Raw) -> bool:
    return flag(spec, "domain", "cpu", "dedicatedCpuPlacement")


def vcpus(spec: Raw) -> int:
    """The product of those of cores, sockets and threads that are given."""
    made = 0
    for key in ("cores", "sockets", "threads"):
        given = whole(spec, "domain", "cpu", key)
        made = given * (made or 1) if given else made
    return made


def _pinning(spec: Raw, at: str) -> Iterator[Cause]:
    if not _is_pinned(spec):
        return
    limit, requested = _resource(spec, "limits", "cpu"), _resource(spec, "requests", "cpu")
    limits, requests = _limits(at, "cpu"), _requests(at, "cpu")
    memory, memory_requested = _resource(spec, "limits", "memory"), _resource(spec, "requests", "memory")
    placement, threads = f"{at}.domain.cpu.dedicatedCpuPlacement", whole(spec, "domain", "cpu", "threads")
    pages = nested(spec, "domain", "memory", "hugepages")
    guest = quantity(spec, "domain", "memory", "guest")
    if not (memory.whole or memory_requested.whole or guest.whole or pages is not None):
        fields = f"{_requests(at, 'memory')}, {_limits(at, 'memory')}, {at}.domain.memory.hugepages"
        yield Cause(f"{fields} or {at}.domain.memory.guest should be provided", _limits(at, "memory"))
    for kind, given, field in (("requests", requested, requests), ("limits", limit, limits)):
        if given.whole > 0 and given.whole * 1000 != given.milli:
            yield Cause(f"provided resources CPU {kind} must be an interger", field)
    if memory.whole > 0 and memory_requested.whole > 0 and memory.whole != memory_requested.whole:
        field = _requests(at, "memory")
        yield Cause(f"{field} must be equal to {_limits(at, 'memory')}", field)
    counted = vcpus(spec)
    if not (requested.whole or limit.whole or counted):
        why = f"either {requests} or {limits} or {at}.domain.cpu.cores must be provided when DedicatedCPUPlacement is true "
        yield Cause(why, placement)
    if requested.whole > 0 and limit.whole > 0 and requested.whole != limit.whole:
        yield Cause(f"{requests} or {limits} must be equal when DedicatedCPUPlacement is true ", placement)
    if (requested.whole > 0 or limit.whole > 0) and counted and counted not in (requested.whole, limit.whole):
        why = f"must not be provided at the same time with {at}.domain.cpu.cores when DedicatedCPUPlacement is true "
        yield Cause(f"{requests} or {limits} {why}", placement)
    if threads > 1 and text(spec, "architecture") == "arm64":
        why = f"at {at}.domain.cpu.threads (got {threads}) when {at}.architecture is arm64"
        yield Cause(f"threads must not be greater than 1 {why}", f"{at}.architecture")
    if threads > 2:
        why = f"{at}.domain.cpu.threads (got {threads}) when DedicatedCPUPlacement is true"
        yield Cause(f"Not more than two threads must be provided at {why}", placement)


def _numa(spec: Raw, at: str) -> Iterator[Cause]:
    if nested(spec, "domain", "cpu", "numa", "guestMappingPassthrough") is None:
        return
    field = f"{at}.domain.cpu.numa.guestMappingPassthrough"
    when = f"when NUMA topology strategy is set in {field}"
    if not _is_pinned(spec):
        yield Cause(f"{at}.domain.cpu.dedicatedCpuPlacement must be set to true {when}", field)
    if nested(spec, "domain", "memory", "hugepages") is None:
        yield Cause(f"{at}.domain.memory.hugepages must be requested {when}", field)


def _emulator_thread(spec: Raw, at: str) -> Iterator[Cause]:
    if flag(spec, "domain", "cpu", "isolateEmulatorThread") and not _is_pinned(spec):
        why = "IsolateEmulatorThread should be only set in combination with DedicatedCPUPlacement"
        yield Cause(why, f"{at}.domain.cpu.isolateEmulatorThread")


def _cpu_features(spec: Raw, at: str) -> Iterator[Cause]:
    for place, feature in enumerate(objects(spec, "domain", "cpu", "features")):
        policy = text(feature, "policy")
        if policy not in CPU_FEATURE_POLICIES:
            why = f"CPU feature {text(feature, 'name')} uses policy {policy} that is not supported."
            yield Cause(why, f"{at}.domain.cpu.features[{place}].policy", NOT_SUPPORTED)


def sockets_fit(spec: Raw, at: str) -> Iterator[Cause]:
    most = whole(spec, "domain", "cpu", "maxSockets")
    if most and whole(spec, "domain", "cpu", "sockets") > most:
        why = "Number of sockets in CPU topology is greater than the maximum sockets allowed"
        yield Cause(why, f"{at}.domain.cpu.sockets")


BLOCK, HUGE_BLOCK, LEAST_HOTPLUG = 2 << 20, 1 << 30, 1 << 30


def memory_hotplug(spec: Raw, at: str) -> Iterator[Cause]:
    """Of a template that has a maximum of guest memory."""
    if nested(spec, "domain", "memory", "maxGuest") is None:
        return
    guest, most = (quantity(spec, "domain", "memory", key) for key in ("guest", "maxGuest"))
    block = HUGE_BLOCK if nested(spec, "domain", "memory", "hugepages", "pageSize") == "1Gi" else BLOCK
    aligned = "1Gi" if block == HUGE_BLOCK else "2Mi"
    faults = (
        (
            nested(spec, "domain", "cpu", "realtime") is not None,
            "Memory hotplug is not compatible with realtime VMs",
        ),
        (
            nested(spec, "domain", "cpu", "numa", "guestMappingPassthrough") is not None,
            "Memory hotplug is not compatible with guest mapping passthrough",
        ),
        (
            nested(spec, "domain", "launchSecurity") is not None,
            "Memory hotplug is not compatible with encrypted VMs",
        ),
        (
            nested(spec, "domain", "memory", "guest") is None,
            "Guest memory must be configured when memory hotplug is enabled",
        ),
        (guest.number > most.number, "Guest memory is greater than the configured maxGuest memory"),
        (guest.whole % block != 0, f"Guest memory must be {aligned} aligned"),
        (most.whole % block != 0, f"MaxGuest must be {aligned} aligned"),
        (
            text(spec, "architecture") != "amd64",
            "Memory hotplug is only available for x86_64 VMs",
        ),
        (
            guest.whole < LEAST_HOTPLUG,
            "Memory hotplug is only available for VMs with at least 1Gi of guest memory",
        ),
    )
    if why := next((why for is_so, why in faults if is_so), ""):
        yield Cause(why, f"{at}.domain.memory.guest")


def _realtime(spec: Raw, at: str) -> Iterator[Cause]:
    if nested(spec, "domain", "cpu", "realtime") is None:
        return
    used = f"when {at}.domain.cpu.realtime is used"
    if not _is_pinned(spec):
        field = f"{at}.domain.cpu.dedicatedCpuPlacement"
        yield Cause(f"{field} must be set to true {used}", field, REQUIRED)
    if nested(spec, "domain", "cpu", "numa", "guestMappingPassthrough") is None:
        field = f"{at}.domain.cpu.numa.guestMappingPassthrough"
        yield Cause(f"{field} must be defined {used}", field, REQUIRED)


COMPUTE_RULES: tuple[Rule, ...] = (
    _memory_requests,
    _memory_limits,
    _hugepages,
    _machine,
    _acpi,
    _cpu_requests,
    _cpu_limits,
    _pinning,
    _numa,
    _emulator_thread,
    _cpu_features,
    sockets_fit,
)
LATER_COMPUTE_RULES: tuple[Rule, ...] = (_realtime,)


# --- firmware ---------------------------------------------------------------------------------------------------


def firmware(domain: Raw, at: str) -> Iterator[Cause]:
    """Of the domain, whose path `at` is."""
    loader = section(domain, "firmware", "bootloader")
    if len(has(loader, "efi", "bios")) == 2:
        field = f"{at}.firmware.bootloader"
        yield Cause(f"{field} has both EFI and BIOS configured, but they are mutually exclusive.", field)
    yield from _kernel_boot(section(domain, "firmware", "kernelBoot"), f"{at}.firmware.kernelBoot")
    is_secure = loader.get("efi") is not None and nested(loader, "efi", "secureBoot") is not False
    smm = nested(domain, "features", "smm")
    if is_secure and (smm is None or nested(smm, "enabled") is False):
        why = "has EFI SecureBoot enabled. SecureBoot requires SMM, which is currently disabled."
        yield Cause(f"{at} {why}", at)


def _kernel_boot(boot: Raw, at: str) -> Iterator[Cause]:
    if boot and boot.get("container") is None:
        if text(boot, "kernelArgs"):
            yield Cause("kernel arguments cannot be provided without an external kernel", f"{at}.kernelArgs")
        return
    container = section(boot, "container")
    if not boot:
        return
    field = f"{at}.container"
    if not text(container, "image"):
        yield Cause(f"{field} must be defined with an image", f"{field}.image", REQUIRED)
    if not (text(container, "kernelPath") or text(container, "initrdPath")):
        needed = "must be defined with at least one of the following: kernelPath, initrdPath"
        yield Cause(f"{field} {needed}", field, REQUIRED)


def launch_security(spec: Raw, at: str) -> Iterator[Cause]:
    """No gate for it is open in Harvester."""
    asked = nested(spec, "domain", "launchSecurity")
    if asked is None:
        return
    kinds = has(asked, "sev", "snp", "tdx")
    field = f"{at}.launchSecurity"
    if len(kinds) != 1:
        yield Cause("One and only one launchSecurity type can be set", field, FORBIDDEN)
    else:
        gate = "WorkloadEncryptionTDX" if kinds == ["tdx"] else "WorkloadEncryptionSEV"
        yield Cause(f"{gate} feature gate is not enabled in kubevirt-config", field)
