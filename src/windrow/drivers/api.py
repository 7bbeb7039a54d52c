"""A NodeDriver as the catalogue reads it. Faults are part of the reading: an object that is wrong must still be shown."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from windrow.drivers.faults import Fault
from windrow.kubernetes.objects import annotations_of, finalizers_of, is_deleting, name_of, nested, uid_of

FINALIZER = "windrow.io/node-driver"
MAX_DISPLAY_NAME = 57
# What Rancher writes for drivers that are part of its own image.
LOCAL_URL = "local://"
# What is said of one that is to go.
DELETED_MESSAGE = "it was deleted"

_HEX = re.compile(r"[0-9a-f]*")
_DIGESTS = {32: "an MD5", 40: "a SHA-1", 128: "a SHA-512"}
_WEAK_DIGEST = "files can be made that have the same"
_WHY_UNSUITABLE = {
    32: _WEAK_DIGEST,
    40: _WEAK_DIGEST,
    128: "Rancher's machine image, which must be able to use the same object, compares SHA-256 only",
}


@dataclass(frozen=True, slots=True)
class FieldAnnotations:
    """What a driver's author or Rancher says about its fields, in the annotations of the NodeDriver, as far as the
    kind depends on it."""

    private: frozenset[str] = frozenset()
    passwords: frozenset[str] = frozenset()
    defaults: Mapping[str, str] = field(default_factory=dict)


NO_FIELD_ANNOTATIONS = FieldAnnotations()


@dataclass(frozen=True, slots=True)
class NodeDriver:
    """`checksum` is in lower case. `faults` is empty where the driver can be fetched as the object stands."""

    name: str
    uid: str
    url: str
    checksum: str
    active: bool
    display_name: str = ""
    built_in_kind: str = ""  # of a driver that is built in; its name is that of the object
    add_cloud_credential: bool = False
    field_annotations: FieldAnnotations = NO_FIELD_ANNOTATIONS
    created: str = ""
    generation: int = 0
    is_deleting: bool = False
    has_finalizer: bool = False
    status: Mapping[str, Any] = field(default_factory=dict)
    faults: tuple[Fault, ...] = ()

    @property
    def is_requested(self) -> bool:
        return self.active or self.add_cloud_credential

    @property
    def driver_name(self) -> str:
        """What the driver in use calls itself, "" before one was installed."""
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
        """Whether the driver in use is the one that is asked for."""
        return self.applied == (self.url, self.checksum)

    @property
    def is_usable(self) -> bool:
        """Whether Clusters may use it now."""
        return self.active and bool(self.config_kind) and not self.is_deleting


def read_driver(
    raw: Mapping[str, Any], *, files_allowed: bool = False, built_in_kind: str = ""
) -> NodeDriver:
    """The reading of `raw`. With `own_kind` it is built in: then its URL and checksum mean nothing."""
    spec = raw.get("spec")
    spec = spec if isinstance(spec, Mapping) else {}
    return NodeDriver(
        name=name_of(raw),
        uid=uid_of(raw),
        url=_text(spec, "url"),
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
        faults=() if built_in_kind else tuple(_spec_faults(spec, files_allowed)),
    )


def read_field_annotations(annotations: Mapping[str, str]) -> FieldAnnotations:
    """The hints in `annotations`; what is malformed there is left out."""

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
    """The machine config kinds that a Cluster's pools name."""
    pools = nested(cluster, "spec", "rkeConfig", "machinePools", default=()) or ()
    named = (nested(pool, "machineConfigRef", "kind", default="") for pool in pools)
    return frozenset(str(kind or "HarvesterConfig") for kind in named)


def read_machine_driver(machine: Mapping[str, Any]) -> str:
    """The node driver that makes a Machine, and is needed to remove it."""
    return str(nested(machine, "spec", "driver", default="") or "harvester")


def redact_url(url: str) -> str:
    """The URL for sentences: without a query, which may hold a signature, and without a password."""
    try:
        parts = urlsplit(url)
        host = parts.netloc.rpartition("@")[2]
        return urlunsplit((parts.scheme, host, parts.path, "", ""))
    except ValueError:
        return "the URL"


def _spec_faults(spec: Mapping[str, Any], files_allowed: bool) -> list[Fault]:
    faults = [
        *find_url_faults(_text(spec, "url"), files_allowed=files_allowed),
        *find_checksum_faults(_text(spec, "checksum")),
        *_display_name_faults(_text(spec, "displayName")),
    ]
    if spec.get("builtin") is True and not faults:
        faults.append(
            Fault(
                "spec.builtin is true, and only harvester is built in here",
                "take it out",
                field="spec.builtin",
            )
        )
    return faults


def find_url_faults(url: str, *, files_allowed: bool) -> list[Fault]:
    """What is wrong with the URL of a driver; at most one thing."""

    def fault(message: str, hint: str) -> list[Fault]:
        return [Fault(message, hint, field="spec.url")]

    if not url:
        return fault("spec.url is empty", "write the https URL that the driver comes from")
    if url.startswith(LOCAL_URL):
        return fault(
            "spec.url is local://, which names a driver inside Rancher's own image",
            "write the https URL that the driver comes from, and its SHA-256",
        )
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return fault("spec.url is no URL", "write it as https://HOST/PATH")
    if parts.scheme == "file":
        return _file_faults(parts.netloc, parts.path, files_allowed, fault)
    if parts.scheme != "https":
        return fault(
            f"spec.url is of the scheme {parts.scheme or '(none)'}, and drivers come over https only",
            "write it as https://HOST/PATH",
        )
    if not host:
        return fault("spec.url names no host", "write it as https://HOST/PATH")
    if parts.username or parts.password:
        return fault(
            "spec.url holds a user name or a password, which everybody who may read the object would see",
            "put the driver where it can be had without, or behind a URL that is signed",
        )
    return []


def _file_faults(host: str, path: str, files_allowed: bool, fault: Any) -> list[Fault]:
    if not files_allowed:
        return list(
            fault(
                "spec.url names a file, and drivers from files are not allowed here",
                "put it behind https, or start the manager with --allow-file-urls",
            )
        )
    if host not in ("", "localhost") or not path.startswith("/"):
        return list(fault("spec.url names a file without its whole path", "write it as file:///PATH"))
    return []


def find_checksum_faults(checksum: str) -> list[Fault]:
    """What is wrong with the checksum of a driver; at most one thing."""
    length = len(checksum)
    if not checksum:
        message, hint = "spec.checksum is empty, and nothing is run here that is not proven", ""
    elif not _HEX.fullmatch(checksum.lower()):
        message, hint = "spec.checksum is not written in hexadecimal digits", ""
    elif length in _DIGESTS:
        message, hint = f"spec.checksum is {_DIGESTS[length]} digest: {_WHY_UNSUITABLE[length]}", ""
    elif length != 64:
        message, hint = f"spec.checksum has {length} digits, and a SHA-256 has 64", "copy it again, whole"
    else:
        return []
    return [Fault(message, hint or "write the SHA-256 of the file (sha256sum FILE)", field="spec.checksum")]


def _display_name_faults(name: str) -> list[Fault]:
    if len(name) <= MAX_DISPLAY_NAME:
        return []
    message = f"spec.displayName has {len(name)} characters, and Rancher takes {MAX_DISPLAY_NAME}"
    return [Fault(message, "shorten it", field="spec.displayName")]


def _text(spec: Mapping[str, Any], key: str) -> str:
    value = spec.get(key)
    return value.strip() if isinstance(value, str) else ""
