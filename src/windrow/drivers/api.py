"""NodeDrivers as users write them: the API resources, the typed reading with its faults, the built-in drivers, and which
driver provides a machine config kind. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cache
from typing import Any, Literal
from urllib.parse import urlsplit, urlunsplit

from windrow.core.errors import UserError
from windrow.kubernetes.objects import (
    Raw,
    annotations_of,
    finalizers_of,
    is_deleting,
    mappings_at,
    name_of,
    nested,
    new_object,
    uid_of,
)
from windrow.kubernetes.resources import ApiResource

NODE_DRIVER = ApiResource("management.cattle.io", "v3", "NodeDriver", "nodedrivers", namespaced=False)
# Read to find the users of a driver; defined by the cluster controller.
CLUSTER = ApiResource("provisioning.cattle.io", "v1", "Cluster", "clusters")
MACHINE = ApiResource("windrow.io", "v1alpha1", "Machine", "machines")


# The kind of the built-in driver.
HARVESTER_CONFIG_KIND = "HarvesterConfig"
# How alike two kinds are of which one is a misspelling of the other.
MISSPELT = 0.85


def machine_config(kind: str) -> ApiResource:
    """The API resource of the machine config kind `kind`, for example `HarvesterConfig`."""
    return ApiResource("rke-machine-config.cattle.io", "v1", kind, f"{kind.lower()}s")


def crds() -> list[dict[str, Any]]:
    """The CRD of NodeDriver. The caller may change it."""
    return [deepcopy(_crd())]


@cache
def _crd() -> dict[str, Any]:
    # Imported here because the command line needs the resources above and must start fast.
    from importlib.resources import files

    from windrow.core.formats import yaml

    crd: dict[str, Any] = yaml.load(
        (files("windrow.drivers") / "crds" / "nodedriver.yaml").read_text("utf-8")
    )
    return crd


# Reasons of conditions and events.
Reason = Literal[
    "InvalidSpec",
    "ServerUnreachable",
    "DownloadFailed",
    "ChecksumMismatch",
    "InvalidArchive",
    "WrongPlatform",
    "NotExecutable",
    "ProbeFailed",
    "NameConflict",
    "InvalidCreateFlags",
    "StorageFailed",
    "InUse",
]

# These depend on content that the checksum fixes, or on the spec: a retry cannot help.
TERMINAL_REASONS: frozenset[Reason] = frozenset(
    {"InvalidSpec", "InvalidArchive", "WrongPlatform", "NameConflict", "InvalidCreateFlags"}
)


class Fault(UserError):
    """A fault with its condition reason: raised by the step that meets it, then shown as a value in the status."""

    def __init__(self, message: str, hint: str, reason: Reason = "InvalidSpec") -> None:
        super().__init__(message, hint)
        self.reason = reason

    @property
    def is_retryable(self) -> bool:
        """Whether a retry may succeed with the same spec."""
        return self.reason not in TERMINAL_REASONS

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Fault) and _parts(self) == _parts(other)

    def __hash__(self) -> int:
        return hash(_parts(self))


def _parts(fault: Fault) -> tuple[str, str, str]:
    return (fault.message, fault.hint, fault.reason)


FINALIZER = "windrow.io/node-driver"
MAX_DISPLAY_NAME = 57
# The URL that Rancher writes for drivers of its own image.
LOCAL_URL = "local://"
# The message of one with a deletion timestamp.
DELETED_MESSAGE = "the NodeDriver is being deleted"

_HEX = re.compile(r"[0-9a-f]*")
_DIGESTS = {32: "an MD5", 40: "a SHA-1", 128: "a SHA-512"}
_WEAK_DIGEST = "its collisions can be computed"
_WHY_UNSUITABLE = {
    32: _WEAK_DIGEST,
    40: _WEAK_DIGEST,
    128: "Rancher's machine image, which uses the same object, supports SHA-256 only",
}


@dataclass(frozen=True, slots=True)
class FieldAnnotations:
    """What annotations of the NodeDriver say about the driver's fields, as far as the kind's CRD depends on it."""

    private: frozenset[str] = frozenset()
    passwords: frozenset[str] = frozenset()
    defaults: Mapping[str, str] = field(default_factory=dict)


NO_FIELD_ANNOTATIONS = FieldAnnotations()


@dataclass(frozen=True, slots=True)
class NodeDriver:
    """A NodeDriver. `checksum` is in lower case; `faults` is empty where the driver can be downloaded.

    A built-in driver is part of Windrow, unless its URL names another program, which then takes its place.
    """

    name: str
    uid: str
    url: str
    checksum: str
    active: bool
    display_name: str = ""
    built_in_kind: str = ""  # of a built-in driver, whose name is that of the object
    add_cloud_credential: bool = False
    field_annotations: FieldAnnotations = NO_FIELD_ANNOTATIONS
    created: str = ""
    generation: int = 0
    is_deleting: bool = False
    has_finalizer: bool = False
    status: Mapping[str, Any] = field(default_factory=dict)
    faults: tuple[Fault, ...] = ()

    @property
    def is_built_in(self) -> bool:
        """Whether Windrow's own program is asked for."""
        return bool(self.built_in_kind) and self.url in ("", LOCAL_URL)

    @property
    def override_checksum(self) -> str:
        """The checksum of the program that is used in place of the built-in one, "" for none."""
        return self.applied[1] if self.built_in_kind and not self.is_built_in and self.active else ""

    @property
    def is_requested(self) -> bool:
        # Nothing needs the credential's fields of a built-in driver that is not active.
        return self.active or (self.add_cloud_credential and not self.built_in_kind)

    @property
    def driver_name(self) -> str:
        """The name of the driver in use, "" where none was installed."""
        return self.name if self.built_in_kind else str(self.status.get("driverName") or "")

    @property
    def config_kind(self) -> str:
        return self.built_in_kind or str(self.status.get("configKind") or "")

    @property
    def applied(self) -> tuple[str, str]:
        """URL and checksum of the driver in use, ("", "") for none."""
        return str(self.status.get("appliedURL") or ""), str(self.status.get("appliedChecksum") or "")

    @property
    def is_applied(self) -> bool:
        """Whether the driver in use is that of the spec."""
        return self.applied == (self.url, self.checksum)

    @property
    def is_usable(self) -> bool:
        """Whether Clusters can use it."""
        return self.active and bool(self.config_kind) and not self.is_deleting


def read_driver(
    raw: Mapping[str, Any], *, files_allowed: bool = False, built_in_kind: str = ""
) -> NodeDriver:
    """The reading of `raw`."""
    spec = raw.get("spec")
    spec = spec if isinstance(spec, Mapping) else {}
    url = _text(spec, "url")
    is_own = bool(built_in_kind) and url in ("", LOCAL_URL)
    return NodeDriver(
        name=name_of(raw),
        uid=uid_of(raw),
        url=url,
        checksum=_text(spec, "checksum").lower(),
        active=spec.get("active") is True,
        display_name=_text(spec, "displayName"),
        built_in_kind=built_in_kind,
        add_cloud_credential=spec.get("addCloudCredential") is True,
        field_annotations=read_field_annotations(annotations_of(raw)),
        created=str(raw["metadata"].get("creationTimestamp") or ""),
        generation=int(raw["metadata"].get("generation") or 0),
        is_deleting=is_deleting(raw),
        has_finalizer=FINALIZER in finalizers_of(raw),
        status=nested(raw, "status", default={}),
        faults=() if is_own else tuple(_spec_faults(spec, files_allowed, bool(built_in_kind))),
    )


def read_field_annotations(annotations: Mapping[str, str]) -> FieldAnnotations:
    """The field annotations; malformed entries are left out."""

    def names(key: str) -> frozenset[str]:
        return frozenset(filter(None, (part.strip() for part in annotations.get(key, "").split(","))))

    def pairs(key: str) -> dict[str, str]:
        split = (part.partition(":") for part in annotations.get(key, "").split(","))
        return {left.strip(): right.strip() for left, colon, right in split if colon and left.strip()}

    return FieldAnnotations(
        private=names("privateCredentialFields"),
        passwords=names("passwordFields"),
        defaults=pairs("defaults"),
    )


def read_machine_config_kinds(cluster: Mapping[str, Any]) -> frozenset[str]:
    """The machine config kinds that a Cluster's pools use."""
    pools = mappings_at(cluster, "spec", "rkeConfig", "machinePools")
    named = (nested(pool, "machineConfigRef", "kind", default="") for pool in pools)
    return frozenset(str(kind or "HarvesterConfig") for kind in named)


def read_machine_driver(machine: Mapping[str, Any]) -> str:
    """The node driver of a Machine."""
    return str(nested(machine, "spec", "driver", default="") or "harvester")


def redact_url(url: str) -> str:
    """The URL for messages: without a query, which may hold a signature, and without a password."""
    try:
        parts = urlsplit(url)
        host = parts.netloc.rpartition("@")[2]
        return urlunsplit((parts.scheme, host, parts.path, "", ""))
    except ValueError:
        return "the URL"


def _spec_faults(spec: Mapping[str, Any], files_allowed: bool, may_be_built_in: bool) -> list[Fault]:
    faults = [
        *find_url_faults(_text(spec, "url"), files_allowed=files_allowed),
        *find_checksum_faults(_text(spec, "checksum")),
        *_display_name_faults(_text(spec, "displayName")),
    ]
    if spec.get("builtin") is True and not may_be_built_in and not faults:
        message = "spec.builtin is true, but only harvester is built in"
        faults.append(Fault(message, "remove it"))
    return faults


def find_url_faults(url: str, *, files_allowed: bool) -> list[Fault]:
    """Faults of a driver's URL; at most one."""

    def fault(message: str, hint: str) -> list[Fault]:
        return [Fault(message, hint)]

    if not url:
        return fault("spec.url is empty", "set the https URL of the driver")
    if url.startswith(LOCAL_URL):
        return fault(
            "spec.url is local://, which names a driver inside Rancher's own image",
            "set the https URL of the driver, and its SHA-256",
        )
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return fault("spec.url is no URL", "write it as https://HOST/PATH")
    if parts.scheme == "file" and not files_allowed:
        return fault(
            "spec.url is a file URL, which is not allowed here",
            "serve it over https, or start the manager with --allow-file-urls",
        )
    if parts.scheme == "file":
        is_absolute = parts.netloc in ("", "localhost") and parts.path.startswith("/")
        return [] if is_absolute else fault("spec.url has no absolute path", "write it as file:///PATH")
    if parts.scheme != "https":
        return fault(
            f"spec.url has the scheme {parts.scheme or '(none)'}, but only https is supported",
            "write it as https://HOST/PATH",
        )
    if not host:
        return fault("spec.url has no host", "write it as https://HOST/PATH")
    if parts.username or parts.password:
        return fault(
            "spec.url contains a user name or password, visible to every reader of the object",
            "serve the driver without credentials, or by a signed URL",
        )
    return []


def find_checksum_faults(checksum: str) -> list[Fault]:
    """Faults of a driver's checksum; at most one."""
    length = len(checksum)
    if not checksum:
        message, hint = "spec.checksum is empty: drivers are only run after verification", ""
    elif not _HEX.fullmatch(checksum.lower()):
        message, hint = "spec.checksum is not hexadecimal", ""
    elif length in _DIGESTS:
        message, hint = f"spec.checksum is {_DIGESTS[length]} digest: {_WHY_UNSUITABLE[length]}", ""
    elif length != 64:
        message, hint = f"spec.checksum has {length} digits, but a SHA-256 has 64", "copy all of it"
    else:
        return []
    return [Fault(message, hint or "set the SHA-256 of the file (sha256sum FILE)")]


def _display_name_faults(name: str) -> list[Fault]:
    if len(name) <= MAX_DISPLAY_NAME:
        return []
    message = f"spec.displayName has {len(name)} characters, but Rancher accepts at most {MAX_DISPLAY_NAME}"
    return [Fault(message, "shorten it")]


def _text(spec: Mapping[str, Any], key: str) -> str:
    value = spec.get(key)
    return value.strip() if isinstance(value, str) else ""


@dataclass(frozen=True, slots=True)
class BuiltIn:
    """A built-in node driver. Its object has the driver's name; every program for it has the create flag `marker`."""

    name: str
    kind: str
    description: str
    annotations: tuple[tuple[str, str], ...] = ()
    marker: str = ""


HARVESTER = BuiltIn(
    "harvester",
    "HarvesterConfig",
    "Machines on Harvester HCI. Part of Windrow.",
    (
        ("publicCredentialFields", "clusterType,clusterId"),
        ("privateCredentialFields", "kubeconfigContent"),
        ("optionalCredentialFields", "clusterId"),
        ("defaults", "clusterType:imported"),
    ),
    # A flag of every version of the Go driver, and of no other driver.
    marker="harvester-kubeconfig-content",
)


def render_builtin(driver: BuiltIn) -> Raw:
    """The NodeDriver object."""
    spec = {"displayName": driver.name, "description": driver.description, "externalId": "", "uiUrl": ""}
    return new_object(
        NODE_DRIVER, driver.name, annotations=dict(driver.annotations), spec={**spec, **fixed_fields(driver)}
    )


def fixed_fields(driver: BuiltIn) -> dict[str, Any]:
    """The fields that every start resets; all others (the description, the UI's URL) are the user's."""
    return {
        "url": LOCAL_URL,
        "checksum": "",
        "builtin": True,
        "active": True,
        "displayName": driver.name,
        "addCloudCredential": False,
        "whitelistDomains": [],
    }


def find_changes(driver: BuiltIn, raw: Mapping[str, Any]) -> tuple[str, ...]:
    """The fixed fields that differ in `raw`."""
    spec = raw.get("spec") or {}
    return tuple(
        key for key, wanted in fixed_fields(driver).items() if (spec.get(key) or _empty(wanted)) != wanted
    )


def _empty(wanted: Any) -> Any:
    """An absent field means the same as an empty one."""
    return type(wanted)()


def find_driver(kind: str, drivers: Iterable[NodeDriver]) -> NodeDriver | None:
    """The NodeDriver that provides the kind, active or not; None where none does."""
    return next((one for one in drivers if one.config_kind == kind and not one.is_deleting), None)


def find_meant_kind(kind: str, known: Iterable[str]) -> str:
    """The known kind of which this is a misspelling; "" where none is near, or where it is one itself."""
    by_lower = {one.lower(): one for one in known}
    near = get_close_matches(kind.lower(), by_lower, n=1, cutoff=MISSPELT)
    meant = by_lower[near[0]] if near else ""
    return "" if meant == kind else meant


def no_driver_fault(kind: str = "", known: Iterable[str] = (HARVESTER_CONFIG_KIND,)) -> Fault:
    """The Fault of a kind that no NodeDriver provides. `known` are those that one does."""
    meant = find_meant_kind(kind, known)
    use = f"write {meant}" if meant else f"use a {HARVESTER_CONFIG_KIND}"
    return Fault("no NodeDriver provides that kind", f"{use}, or add the driver: windrow driver add")


def find_refusal(kind: str, drivers: Sequence[NodeDriver]) -> Fault | None:
    """Why no Cluster may use the kind; None where it may."""
    driver = find_driver(kind, drivers)
    if driver is None:
        return no_driver_fault(kind, [one.config_kind for one in drivers])
    if not driver.active:
        return Fault(
            f"NodeDriver {driver.name}, which provides that kind, is not active",
            f"activate it: windrow driver enable {driver.name}",
        )
    return None
