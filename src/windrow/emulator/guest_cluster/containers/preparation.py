"""What a container needs before it starts: the volumes of its pod that are no claims, and its environment.

Texts are the kubelet's. Not simulated: projected service account tokens, resourceFieldRef, image volumes.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass

from windrow.emulator.guest_cluster.containers.files import FileTree, HostTree, StoredTree
from windrow.emulator.guest_os.hardware import File
from windrow.emulator.guest_os.operating_system import GuestOS
from windrow.kubernetes.objects import Raw, annotations_of, labels_of, name_of, namespace_of, nested, uid_of
from windrow.kubernetes.resources import CONFIG_MAP, SECRET, ApiResource, ObjectRef

Find = Callable[[ObjectRef], Awaitable[Raw | None]]


class VolumeNotReady(Exception):
    """A volume cannot be set up; the message is that of the event FailedMount."""


class BadContainerConfig(Exception):
    """The environment cannot be made; the message is that of the waiting state CreateContainerConfigError."""


@dataclass(frozen=True, slots=True)
class PodContext:
    """A pod on its node, and how its kubelet reads objects."""

    pod: Raw
    node: GuestOS
    find: Find

    async def data(self, kind: ApiResource, name: str) -> dict[str, bytes] | None:
        """The data of a Secret or ConfigMap in the pod's namespace; None where there is none."""
        raw = await self.find(kind.ref(name, namespace_of(self.pod)))
        if raw is None:
            return None
        if kind == SECRET:
            return {key: _decoded(value) for key, value in (raw.get("data") or {}).items()}
        texts = {key: str(value).encode() for key, value in (raw.get("data") or {}).items()}
        return texts | {key: _decoded(value) for key, value in (raw.get("binaryData") or {}).items()}


def _decoded(value: object) -> bytes:
    try:
        return base64.b64decode(str(value))
    except ValueError:
        return b""


# -- volumes


async def prepare_volumes(context: PodContext) -> dict[str, FileTree]:
    """The volumes of the pod by name, but those of claims. Raises VolumeNotReady."""
    made: dict[str, FileTree] = {}
    for volume in nested(context.pod, "spec", "volumes", default=[]):
        tree = await _prepare(context, volume)
        if tree is not None:
            made[str(volume["name"])] = tree
    return made


async def _prepare(context: PodContext, volume: Raw) -> FileTree | None:
    name = str(volume["name"])
    if (source := volume.get("hostPath")) is not None:
        return _host_path(context.node, name, str(source["path"]), str(source.get("type") or ""))
    if (source := volume.get("secret")) is not None:
        return StoredTree(await _keys(context, name, SECRET, str(source.get("secretName", "")), source), True)
    if (source := volume.get("configMap")) is not None:
        return StoredTree(await _keys(context, name, CONFIG_MAP, str(source.get("name", "")), source), True)
    if (source := volume.get("projected")) is not None:
        files: dict[str, File] = {}
        for one in source.get("sources") or ():
            for key, kind in (("secret", SECRET), ("configMap", CONFIG_MAP)):
                if (part := one.get(key)) is not None:
                    given = {"defaultMode": source.get("defaultMode"), **part}
                    files |= await _keys(context, name, kind, str(part.get("name", "")), given)
        return StoredTree(files, True)
    if volume.get("emptyDir") is not None:
        return StoredTree({})
    return None


async def _keys(
    context: PodContext, volume: str, kind: ApiResource, name: str, source: Raw
) -> dict[str, File]:
    data, word = await context.data(kind, name), kind.kind.lower()
    mode, optional = int(source.get("defaultMode") or 0o644), bool(source.get("optional"))
    failed = f'MountVolume.SetUp failed for volume "{volume}" : '
    if data is None:
        if optional:
            return {}
        raise VolumeNotReady(f'{failed}{word} "{name}" not found')
    items = source.get("items")
    if not items:
        return {f"/{key}": File(content, mode) for key, content in data.items()}
    files = {}
    for item in items:
        content = data.get(item["key"])
        if content is not None:
            files[f"/{item['path']}"] = File(content, int(item.get("mode") or mode))
        elif not optional:
            raise VolumeNotReady(f"{failed}references non-existent {word} key: {item['key']}")
    return files


def _host_path(node: GuestOS, volume: str, path: str, type: str) -> HostTree:
    failed = f'MountVolume.SetUp failed for volume "{volume}" : hostPath type check failed: {path} is not a'
    match type:
        case "Directory" if not node.is_directory(path):
            raise VolumeNotReady(f"{failed} directory")
        case "File" if not node.is_file(path):
            raise VolumeNotReady(f"{failed} file")
        case "Socket" | "CharDevice" | "BlockDevice" if not node.exists(path):
            raise VolumeNotReady(f"{failed} {_KINDS_OF_FILES[type]}")
        case "FileOrCreate" if not node.exists(path):
            node.write(path, b"")
        case "" | "DirectoryOrCreate" if not node.exists(path):
            node.make_directory(path)
    return HostTree(node, path)


_KINDS_OF_FILES = {"Socket": "socket file", "CharDevice": "character device", "BlockDevice": "block device"}


# -- environment


async def prepare_environment(context: PodContext, container: Raw) -> dict[str, str]:
    """The variables of a container. Raises BadContainerConfig."""
    made: dict[str, str] = {}
    for source in container.get("envFrom") or ():
        for key, kind in (("secretRef", SECRET), ("configMapRef", CONFIG_MAP)):
            if (part := source.get(key)) is not None:
                found = await _data(context, kind, part)
                prefix = source.get("prefix") or ""
                made |= {f"{prefix}{name}": _text(value) for name, value in found.items()}
    for one in container.get("env") or ():
        value = await _value(context, one)
        if value is not None:
            made[str(one["name"])] = expand_variables(value, made)
    return made


async def _data(context: PodContext, kind: ApiResource, source: Raw) -> dict[str, bytes]:
    data = await context.data(kind, str(source.get("name", "")))
    if data is None and not source.get("optional"):
        raise BadContainerConfig(f'{kind.kind.lower()} "{source.get("name", "")}" not found')
    return data or {}


async def _value(context: PodContext, one: Raw) -> str | None:
    source = one.get("valueFrom")
    if source is None:
        return str(one.get("value") or "")
    for key, kind in (("secretKeyRef", SECRET), ("configMapKeyRef", CONFIG_MAP)):
        if (part := source.get(key)) is not None:
            data = await _data(context, kind, part)
            if part["key"] in data:
                return _text(data[part["key"]])
            if part.get("optional"):
                return None
            place = f"{namespace_of(context.pod)}/{part.get('name', '')}"
            raise BadContainerConfig(f"couldn't find key {part['key']} in {kind.kind} {place}")
    return _field(context, str(nested(source, "fieldRef", "fieldPath", default="")))


def _field(context: PodContext, path: str) -> str:
    pod = context.pod
    found = re.fullmatch(r"metadata\.(labels|annotations)\['(.*)'\]", path)
    if found is not None:
        return (labels_of(pod) if found[1] == "labels" else annotations_of(pod)).get(found[2], "")
    known = {
        "metadata.name": name_of(pod),
        "metadata.namespace": namespace_of(pod),
        "metadata.uid": uid_of(pod),
        "spec.nodeName": str(nested(pod, "spec", "nodeName", default="")),
        "spec.serviceAccountName": str(nested(pod, "spec", "serviceAccountName", default="default")),
        "status.hostIP": context.node.address,
        "status.podIP": str(nested(pod, "status", "podIP", default="")),
    }
    return known.get(path, "")


def _text(value: bytes) -> str:
    return value.decode("utf-8", "replace")


def expand_variables(text: str, variables: Mapping[str, str]) -> str:
    """`$(NAME)` in commands and values, as Kubernetes expands it; an unknown one stays, `$$` is a dollar sign."""
    return "".join(_expanded(text, variables))


_REFERENCE = re.compile(r"\$\$|\$\(([A-Za-z_.-][A-Za-z0-9_.-]*)\)")


def _expanded(text: str, variables: Mapping[str, str]) -> Iterator[str]:
    end = 0
    for found in _REFERENCE.finditer(text):
        yield text[end : found.start()]
        yield "$" if found[0] == "$$" else variables.get(found[1], found[0])
        end = found.end()
    yield text[end:]
