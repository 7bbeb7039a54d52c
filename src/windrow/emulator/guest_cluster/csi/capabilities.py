"""How Kubernetes' access modes, volume modes and options read in the requests of side-cars and kubelets. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from windrow.emulator.quantities import quantity_or_zero
from windrow.kubernetes.objects import Raw, nested

_MODES = {
    "ReadWriteOnce": "SINGLE_NODE_WRITER",
    "ReadWriteOncePod": "SINGLE_NODE_SINGLE_WRITER",
    "ReadOnlyMany": "MULTI_NODE_READER_ONLY",
    "ReadWriteMany": "MULTI_NODE_MULTI_WRITER",
}
# By how much access is given: of several modes of one volume, the most is asked for when it is attached.
_WIDEST_FIRST = ("ReadWriteMany", "ReadOnlyMany", "ReadWriteOnce", "ReadWriteOncePod")
MULTI_WRITER = "SINGLE_NODE_MULTI_WRITER"


def read_mode(access_mode: str, *, multi_writer: bool) -> str:
    """The mode of CSI; `multi_writer` is whether the driver distinguishes one pod from several on one node."""
    if access_mode == "ReadWriteOnce" and multi_writer:
        return MULTI_WRITER
    return _MODES[access_mode]


def widest_mode(access_modes: Sequence[str]) -> str:
    return next((one for one in _WIDEST_FIRST if one in access_modes), "ReadWriteOnce")


def render_capability(
    access_mode: str, volume_mode: str, fs_type: str, mount_flags: Sequence[str], *, multi_writer: bool
) -> Raw:
    """A VolumeCapability."""
    mode = {"mode": read_mode(access_mode, multi_writer=multi_writer)}
    if volume_mode == "Block":
        return {"block": {}, "access_mode": mode}
    mount: Raw = {"fs_type": fs_type} if fs_type else {}
    return {
        "mount": {**mount, **({"mount_flags": list(mount_flags)} if mount_flags else {})},
        "access_mode": mode,
    }


def render_volume_capability(volume: Raw, *, multi_writer: bool) -> Raw:
    """The VolumeCapability with which a PersistentVolume is attached, expanded and mounted."""
    spec = volume["spec"]
    return render_capability(
        widest_mode(spec.get("accessModes") or ()),
        str(spec.get("volumeMode") or "Filesystem"),
        str(nested(spec, "csi", "fsType", default="")),
        spec.get("mountOptions") or (),
        multi_writer=multi_writer,
    )


def storage_bytes(raw: Raw | None, *path: str) -> int:
    """The bytes of a quantity at this path; 0 where there is none."""
    return int(quantity_or_zero(nested(raw, *path, "storage")))


def print_bytes(size: int) -> str:
    """A size as side-cars print it: with the largest binary suffix that divides it."""
    for suffix, factor in (("Ti", 2**40), ("Gi", 2**30), ("Mi", 2**20), ("Ki", 2**10)):
        if size and size % factor == 0:
            return f"{size // factor}{suffix}"
    return str(size)
