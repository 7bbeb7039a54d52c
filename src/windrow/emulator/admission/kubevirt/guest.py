"""KubeVirt's rules of the rest of a template's spec: names, probes, devices, credentials, DNS (v1.7.0, as Harvester
1.8 configures it)."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator

from windrow.apiserver.types.registry import name_errors
from windrow.emulator.admission.kubevirt.causes import (
    NOT_SUPPORTED,
    REQUIRED,
    Cause,
    Rule,
    flag,
    has,
    objects,
    section,
    text,
    texts,
    whole,
)
from windrow.emulator.admission.kubevirt.storage import as_of_go_client, label_faults
from windrow.kubernetes.objects import Raw, nested

EVICTION_STRATEGIES = ("LiveMigrate", "LiveMigrateIfPossible", "None", "External")
IO_THREAD_POLICIES = ("shared", "auto", "supplementalPool")
DNS_POLICIES = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None", "")
PROBE_KINDS = ("httpGet", "tcpSocket", "exec", "guestAgentPing")
RESERVED_LABELS = (
    "kubevirt.io/created-by", "kubevirt.io/migrationJobUID", "kubevirt.io/nodeName",
    "kubevirt.io/migrationTargetNodeName", "kubevirt.io/schedulable", "kubevirt.io/install-strategy",
)  # fmt: skip


def hostname(spec: Raw, at: str) -> Iterator[Cause]:
    for key, word, faults_of in (
        ("hostname", "DNS_LABEL", label_faults),
        ("subdomain", "DNS_SUBDOMAIN", _subdomain_faults),
    ):
        name = text(spec, key)
        if faults := faults_of(name) if name else []:
            why = ", ".join(faults)
            yield Cause(f"{at}.{key} does not conform to the kubernetes {word} rules : {why}", f"{at}.{key}")


def _subdomain_faults(name: str) -> list[str]:
    return [as_of_go_client(fault) for fault in name_errors("subdomain", name)]


def start_strategy(spec: Raw, at: str) -> Iterator[Cause]:
    strategy, field = nested(spec, "startStrategy"), f"{at}.startStrategy"
    if strategy is None:
        return
    if strategy != "Paused":
        yield Cause(f"{field} is set with an unrecognized option: {strategy}", field)
    elif has(spec, "livenessProbe"):
        why = f"either {field} or {at}.livenessProbe should be provided.Pausing VMI with LivenessProbe is not supported"
        yield Cause(why, field)


def gpus(spec: Raw, at: str) -> Iterator[Cause]:
    field = f"{at}.spec.domain.devices.gpus"
    asked = objects(spec, "domain", "devices", "gpus")
    claimed = [one for one in asked if has(one, "claimName") and has(one, "requestName")]
    for one in asked:
        if one in claimed:
            continue
        if not text(one, "deviceName"):
            yield Cause("vmi.spec.domain.devices.gpus contains GPUs without deviceName", field)
            return
    if claimed:
        why = "vmi.spec.domain.devices.gpus contains DRA enabled GPUs but feature gate is not enabled"
        yield Cause(why, field)


def inputs(spec: Raw, at: str) -> Iterator[Cause]:
    for place, one in enumerate(objects(spec, "domain", "devices", "inputs")):
        field = f"{at}.domain.devices.inputs[{place}]"
        if text(one, "bus") not in ("", "virtio", "usb"):
            yield Cause("Input device can have only virtio or usb bus.", f"{field}.bus")
        if text(one, "type") != "tablet":
            yield Cause("Input device can have only tablet type.", f"{field}.type")


def io_threads(spec: Raw, at: str) -> Iterator[Cause]:
    policy = nested(spec, "domain", "ioThreadsPolicy")
    if policy is None:
        return
    if policy not in IO_THREAD_POLICIES:
        yield Cause(f"Invalid IOThreadsPolicy ({policy})", f"{at}.domain.ioThreadsPolicy")
    count = whole(spec, "domain", "ioThreads", "supplementalPoolThreadCount")
    if policy == "supplementalPool" and count < 1:
        why = "the number of iothreads needs to be set and positive for the dedicated policy"
        yield Cause(why, f"{at}.domain.ioThreads.count")


def probes(spec: Raw, at: str) -> Iterator[Cause]:
    asked = [key for key in ("readinessProbe", "livenessProbe") if has(spec, key)]
    for key in asked:
        field, kinds = f"{at}.{key}", has(section(spec, key), *PROBE_KINDS)
        if len(kinds) > 1:
            yield Cause(f"{field} must have exactly one probe type set", field)
        if not kinds:
            fields = f"{field}.tcpSocket, {field}.exec or {field}.httpGet"
            why = f"either {fields} must be set if a {field} is specified"
            yield Cause(why, field, REQUIRED)
    if any(has(one, "pod") for one in objects(spec, "networks")):
        return
    for key in asked:
        for kind in has(section(spec, key), "httpGet", "tcpSocket"):
            field = f"{at}.{key}.{kind}"
            yield Cause(f"{field} is only allowed if the Pod Network is attached", field)


def access_credentials(spec: Raw, at: str) -> Iterator[Cause]:
    volumes = objects(spec, "volumes")
    for place, one in enumerate(objects(spec, "accessCredentials")):
        this = f"{at}.accessCredentials[{place}]"
        kinds = has(one, "sshPublicKey", "userPassword")
        for kind in kinds:
            source, method = section(one, kind, "source"), section(one, kind, "propagationMethod")
            known = ["qemuGuestAgent"]
            if kind == "sshPublicKey":
                known = ["noCloud", "configDrive", "qemuGuestAgent"]
                for name, volume in (
                    ("noCloud", "cloudInitNoCloud"),
                    ("configDrive", "cloudInitConfigDrive"),
                ):
                    if has(method, name) and not any(has(other, volume) for other in volumes):
                        why = (
                            f"requires a {name} volume to exist when the {name} propagationMethod is in use."
                        )
                        yield Cause(f"{this} {why}", f"{this}.{kind}.propagationMethod")
                if has(method, "qemuGuestAgent") and not texts(method, "qemuGuestAgent", "users"):
                    why = f"{this} requires at least one user to be present in the users list"
                    yield Cause(why, f"{this}.{kind}.propagationMethod.qemuGuestAgent.users")
            if not has(source, "secret"):
                yield Cause(f"{this} must have exactly one source set", f"{this}.{kind}.source")
            if len(has(method, *known)) != 1:
                why = f"{this} must have exactly one propagationMethod set"
                yield Cause(why, f"{this}.{kind}.propagationMethod")
        if len(kinds) != 1:
            yield Cause(f"{this} must have exactly one access credential type set", this)


def dns(spec: Raw, at: str) -> Iterator[Cause]:
    policy = text(spec, "dnsPolicy")
    if policy not in DNS_POLICIES:
        listed = " ".join(DNS_POLICIES)
        why = f"DNSPolicy: {policy} is not supported, valid values: [{listed}]"
        yield Cause(why, f"{at}.dnsPolicy", NOT_SUPPORTED)
    config = nested(spec, "dnsConfig")
    servers, searches = texts(config, "nameservers"), texts(config, "searches")
    if policy == "None" and config is None:
        why = "must provide `dnsConfig` when `dnsPolicy` is None"
        yield Cause(why, f"{at}.dnsConfig", REQUIRED)
        return
    if policy == "None" and not servers:
        why = "must provide at least one DNS nameserver when `dnsPolicy` is None"
        yield Cause(why, "nameservers", REQUIRED)
        return
    if len(servers) > 3:
        listed = " ".join(servers)
        yield Cause(f"must not have more than 3 nameservers: [{listed}]", "nameservers")
    for server in servers:
        if not _is_address(server):
            yield Cause(f"must be valid IP address: {server}", "nameservers")
    if len(searches) > 6:
        yield Cause("must not have more than 6 search paths", "searchDomains")
    if len(" ".join(searches)) > 256:
        why = "must not have more than 256 characters (including spaces) in the search list"
        yield Cause(why, "searchDomains")
    for search in searches:
        for fault in name_errors("subdomain", search):
            yield Cause(as_of_go_client(fault), "searchDomains")
    for option in objects(config, "options"):
        if not text(option, "name"):
            yield Cause("Option.Name must not be empty", "options")


def _is_address(written: str) -> bool:
    try:
        ipaddress.ip_address(written)
    except ValueError:
        return False
    return True


def eviction(spec: Raw, at: str) -> Iterator[Cause]:
    strategy, field = nested(spec, "evictionStrategy"), f"{at}.evictionStrategy"
    if strategy is not None and strategy not in EVICTION_STRATEGIES:
        yield Cause(f"{field} is set with an unrecognized option: {strategy}", field)


def sound(spec: Raw, at: str) -> Iterator[Cause]:
    card = nested(spec, "domain", "devices", "sound")
    if card is None:
        return
    if text(card, "model") not in ("", "ich9", "ac97"):
        yield Cause("Sound device type is not supported. Options: 'ich9' or 'ac97'", f"{at}.Sound")
    if not text(card, "name"):
        yield Cause("Sound device requires a name field.", f"{at}.Sound")


def closed_gates(spec: Raw, at: str) -> Iterator[Cause]:
    """What needs a feature gate that Harvester leaves closed."""
    devices = section(spec, "domain", "devices")
    if flag(devices, "autoattachVSOCK"):
        why = "VSOCK feature gate is not enabled in kubevirt-config"
        yield Cause(why, f"{at}.domain.devices.autoattachVSOCK")
    if any(flag(disk, "lun", "reservation") for disk in objects(devices, "disks")):
        why = "PersistentReservation feature gate is not enabled in kubevirt-config"
        yield Cause(why, f"{at}.domain.devices.disks.luns.reservation")
    if has(devices, "downwardMetrics"):
        why = "downwardMetrics virtio serial is not allowed: DownwardMetrics feature gate is not enabled"
        yield Cause(why, f"{at}.domain.devices.downwardMetrics")
    volumes = {text(one, "name"): one for one in objects(spec, "volumes")}
    for one in objects(devices, "filesystems"):
        if has(volumes.get(text(one, "name"), {}), "persistentVolumeClaim", "dataVolume"):
            why = "virtiofs is not allowed: virtiofs feature gate is not enabled for PVC"
            yield Cause(why, f"{at}.domain.devices.filesystems")
    if has(devices, "video"):
        why = "Video configuration is specified but the VideoConfig feature gate is not enabled"
        yield Cause(why, f"{at}.video")
    if objects(devices, "panicDevices"):
        why = "Panic Devices feature gate is not enabled in kubevirt-config"
        yield Cause(why, f"{at}.domain.devices.panicDevices")


EARLY_RULES: tuple[Rule, ...] = (hostname,)
LATE_RULES: tuple[Rule, ...] = (inputs, io_threads, probes)
LAST_RULES: tuple[Rule, ...] = (eviction, sound)
