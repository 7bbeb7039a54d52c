"""Reads the fields of requests, and refuses what the specification does not allow, naming the field. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches

from windrow.csi import names
from windrow.csi.errors import Aborted, InvalidArgument
from windrow.csi.sizes import MAX_BYTES, SizeRange
from windrow.csi.volumes import SnapshotSource, Source, VolumeKind, VolumeSource
from windrow.protocols.csi import csi_pb2 as csi

Mode = csi.VolumeCapability.AccessMode

# The specification bounds names by 128 bytes; handles here are names of Kubernetes objects, with a namespace at most.
MAX_NAME = 128
MAX_HANDLE = 512
# All keys and values of a map together, in bytes.
MAX_MAP = 4096
MAX_CAPABILITIES = 64
MAX_FLAGS = 4096
# How alike a parameter and a known one are, from 0 to 1, where the known one must be meant.
MISSPELT = 0.75

ONE_NODE = frozenset(
    {
        Mode.SINGLE_NODE_WRITER,
        Mode.SINGLE_NODE_READER_ONLY,
        Mode.SINGLE_NODE_SINGLE_WRITER,
        Mode.SINGLE_NODE_MULTI_WRITER,
    }
)
MANY_NODES = frozenset({Mode.MULTI_NODE_MULTI_WRITER})

_TOKEN = "after:"


def read_name(text: str, field: str = "name") -> str:
    """A name that a caller chose. Raises InvalidArgument."""
    return _read_text(text, field, MAX_NAME)


def read_handle(text: str, field: str) -> str:
    """The id of a volume, snapshot or node. Raises InvalidArgument."""
    return _read_text(text, field, MAX_HANDLE)


def _read_text(text: str, field: str, most: int) -> str:
    if not text:
        raise InvalidArgument(field, "it is missing")
    if len(text.encode()) > most:
        raise InvalidArgument(field, f"it has {len(text.encode())} bytes; at most {most} are allowed")
    if not text.isprintable():
        raise InvalidArgument(field, "it holds characters that cannot be printed")
    return text


def read_range(found: csi.CapacityRange, field: str = "capacity_range") -> SizeRange:
    """Raises InvalidArgument."""
    for name in ("required_bytes", "limit_bytes"):
        value = getattr(found, name)
        if not 0 <= value <= MAX_BYTES:
            raise InvalidArgument(
                f"{field}.{name}", f"{value} is no size; it is between 0 and {MAX_BYTES} bytes"
            )
    if found.limit_bytes and found.limit_bytes < found.required_bytes:
        raise InvalidArgument(
            f"{field}.limit_bytes",
            f"{found.limit_bytes} is less than required_bytes, which is {found.required_bytes}",
        )
    return SizeRange(found.required_bytes, found.limit_bytes)


def read_map(found: Mapping[str, str], field: str) -> dict[str, str]:
    """Raises InvalidArgument."""
    size = sum(len(key.encode()) + len(value.encode()) for key, value in found.items())
    if size > MAX_MAP:
        raise InvalidArgument(field, f"it has {size} bytes; at most {MAX_MAP} are allowed")
    return dict(found)


def read_volume_parameters(found: Mapping[str, str], field: str = "parameters") -> dict[str, str]:
    """The parameters of a StorageClass. Raises InvalidArgument."""
    parameters = read_map(found, field)
    _require_no_misspelt(parameters, (names.HOST_STORAGE_CLASS, names.HOST_VOLUME_MODE), field)
    mode = parameters.get(names.HOST_VOLUME_MODE)
    if mode is not None and mode not in names.HOST_VOLUME_MODES:
        raise _unknown_value(field, names.HOST_VOLUME_MODE, mode, names.HOST_VOLUME_MODES)
    if parameters.get(names.HOST_STORAGE_CLASS) == "":
        raise InvalidArgument(
            f"{field}[{names.HOST_STORAGE_CLASS}]",
            "it is empty",
            "name a StorageClass of Harvester, or leave it out",
        )
    return parameters


def read_snapshot_parameters(found: Mapping[str, str], field: str = "parameters") -> dict[str, str]:
    """The parameters of a VolumeSnapshotClass. Raises InvalidArgument."""
    parameters = read_map(found, field)
    _require_no_misspelt(parameters, (names.SNAPSHOT_TYPE,), field)
    type_ = parameters.get(names.SNAPSHOT_TYPE)
    if type_ is not None and type_ not in names.SNAPSHOT_TYPES:
        raise _unknown_value(field, names.SNAPSHOT_TYPE, type_, names.SNAPSHOT_TYPES)
    return parameters


def _require_no_misspelt(parameters: Mapping[str, str], known: Sequence[str], field: str) -> None:
    """A parameter of another name has no effect, as with the Go driver; one that is nearly ours was meant to have one."""
    by_lower = {name.lower(): name for name in known}
    for key in ignored_parameters(parameters, known):
        if near := get_close_matches(key[:MAX_NAME].lower(), by_lower, cutoff=MISSPELT):
            raise InvalidArgument(f"{field}[{key}]", "it means nothing", f"write {by_lower[near[0]]}")


def _unknown_value(field: str, key: str, value: str, known: Sequence[str]) -> InvalidArgument:
    return InvalidArgument(
        f"{field}[{key}]",
        f"{value[:MAX_NAME]!r} means nothing",
        f"write one of {', '.join(known)}, or leave it out",
    )


def ignored_parameters(parameters: Mapping[str, str], known: Sequence[str]) -> list[str]:
    """The keys that have no effect, in order; those of the side-cars are no settings."""
    return sorted(
        key for key in parameters if key not in known and not key.startswith(names.SIDECAR_PREFIXES)
    )


def read_kind(found: Sequence[csi.VolumeCapability], field: str) -> VolumeKind:
    """How a volume is kept that has all these capabilities. Raises InvalidArgument where none can."""
    if not found:
        raise InvalidArgument(field, "it is missing")
    if len(found) > MAX_CAPABILITIES:
        raise InvalidArgument(field, f"it has {len(found)} entries; at most {MAX_CAPABILITIES} are allowed")
    kinds = [read_capability(one, f"{field}[{number}]") for number, one in enumerate(found)]
    if len(set(kinds)) > 1:
        raise InvalidArgument(field, "one volume cannot be a disk of one node and be shared by many")
    return kinds[0]


def read_capability(found: csi.VolumeCapability, field: str) -> VolumeKind:
    """How a volume is kept that has the capability. Raises InvalidArgument."""
    access = found.WhichOneof("access_type")
    if access is None:
        raise InvalidArgument(field, "neither mount nor block is set")
    if not found.HasField("access_mode") or found.access_mode.mode == Mode.UNKNOWN:
        raise InvalidArgument(f"{field}.access_mode", "it is missing")
    if sum(map(len, found.mount.mount_flags)) > MAX_FLAGS:
        raise InvalidArgument(f"{field}.mount.mount_flags", f"they have more than {MAX_FLAGS} characters")
    mode = found.access_mode.mode
    if mode in ONE_NODE:
        return "disk"
    if mode not in MANY_NODES:
        raise InvalidArgument(
            f"{field}.access_mode",
            f"{_mode_name(mode)} is not supported",
            "use ReadWriteOnce or ReadWriteOncePod, or ReadWriteMany with a class of Harvester that shares volumes",
        )
    if access == "block":
        raise InvalidArgument(field, f"a block device cannot be used in mode {_mode_name(mode)}")
    return "shared"


def is_read_only(found: csi.VolumeCapability) -> bool:
    """Whether the capability lets no node write."""
    return found.access_mode.mode in (Mode.SINGLE_NODE_READER_ONLY, Mode.MULTI_NODE_READER_ONLY)


def _mode_name(mode: int) -> str:
    try:
        return Mode.Mode.Name(mode)
    except ValueError:
        return f"{mode}, which the specification does not know,"


def read_source(request: csi.CreateVolumeRequest) -> Source | None:
    """What the volume begins as; None for an empty one. Raises InvalidArgument."""
    if not request.HasField("volume_content_source"):
        return None
    found, field = request.volume_content_source, "volume_content_source"
    match found.WhichOneof("type"):
        case "snapshot":
            return SnapshotSource(read_handle(found.snapshot.snapshot_id, f"{field}.snapshot.snapshot_id"))
        case "volume":
            return VolumeSource(read_handle(found.volume.volume_id, f"{field}.volume.volume_id"))
        case _:
            raise InvalidArgument(field, "neither snapshot nor volume is set")


def read_page(max_entries: int, starting_token: str) -> tuple[int, str]:
    """How many entries at most (0: all), and after which id. Raises InvalidArgument, and Aborted for a token that is none of ours."""
    if max_entries < 0:
        raise InvalidArgument("max_entries", f"{max_entries} is negative")
    if not starting_token:
        return max_entries, ""
    if not starting_token.startswith(_TOKEN) or len(starting_token) > len(_TOKEN) + MAX_HANDLE:
        raise Aborted("starting_token: it is no token of this driver", "list again from the beginning")
    return max_entries, starting_token.removeprefix(_TOKEN)


def next_token(last_id: str) -> str:
    """The token for what follows the id. It holds no state, so it stays good when entries come and go."""
    return _TOKEN + last_id
