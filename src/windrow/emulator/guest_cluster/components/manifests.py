"""The deploy controller of RKE2 and K3s: it applies the manifests below `<data>/server/manifests`.

Each file is applied once for each content it has, by the server that has it. A file beside which there is one with the
ending `.skip` is left out. Removing a file removes nothing from the cluster.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterable
from contextlib import suppress
from itertools import chain

from windrow.core.formats.yaml import NotYaml, load_all
from windrow.emulator.guest_cluster.cluster import GuestCluster
from windrow.emulator.guest_os.notifier import result_unless
from windrow.emulator.guest_os.operating_system import GuestOS
from windrow.kubernetes.errors import KubeError, NotFound
from windrow.kubernetes.objects import Raw, flatten_list
from windrow.kubernetes.resources import ApiResource, ref_of

_ENDINGS = (".yaml", ".yml", ".json")


class BadManifest(ValueError):
    """A document of the file is no object; the message says which and why."""


def read_manifest(content: bytes) -> list[Raw]:
    """The objects of a YAML file, those of Lists as well; empty documents are left out. Raises BadManifest, NotYaml."""
    found: list[Raw] = []
    documents = load_all(content.decode("utf-8", "replace"))
    for place, raw in enumerate(chain.from_iterable(map(flatten_list, documents)), start=1):
        if raw is None:
            continue
        if not isinstance(raw, dict):
            raise BadManifest(f"document {place} is no object but {type(raw).__name__}")
        metadata = raw.get("metadata")
        if (
            not isinstance(metadata, dict)
            or not isinstance(metadata.get("name"), str)
            or not metadata["name"]
        ):
            raise BadManifest(f'document {place}: "metadata.name" is required, and a string')
        if not isinstance(metadata.get("namespace", ""), str | None):
            raise BadManifest(f'document {place}: "metadata.namespace" is no string')
        found.append(raw)
    return found


async def deploy_manifests(guest: GuestOS, cluster: GuestCluster, directory: str) -> None:
    """Apply every file below `directory`, again after each change of a file; until cancelled."""
    while True:
        changed = asyncio.ensure_future(guest.files_changed.wait())
        has_failed = await _apply_all(guest, cluster, directory)
        cluster.changed.notify()
        try:
            if has_failed:
                await result_unless(changed, guest.sleep(guest.delays.manifests_retry))
            else:
                await changed
                await guest.sleep(guest.delays.manifests_retry)  # the real one looks every 15 s
        finally:
            changed.cancel()


async def _apply_all(guest: GuestOS, cluster: GuestCluster, directory: str) -> bool:
    """Whether a file could not be applied."""
    has_failed = False
    for path in guest.list_under(directory):
        if not path.endswith(_ENDINGS) or guest.is_file(f"{path}.skip"):
            continue
        content = guest.read(path) or b""
        name = path.rsplit("/", 1)[-1]
        checksum = hashlib.sha256(content).hexdigest()
        if cluster.addons.get(name) == checksum:
            continue
        try:
            await _apply_file(cluster, content)
            cluster.addons[name] = checksum
            guest.log("deploy", f"Applied manifest {path}")
        except (BadManifest, NotYaml, KubeError) as error:
            has_failed = True
            guest.log("deploy", f"Failed to process {path}: {error}")
    return has_failed


async def remove_addon(cluster: GuestCluster, name: str, objects: Iterable[Raw]) -> None:
    """Delete the objects of a file that was applied before its component was disabled."""
    if cluster.addons.pop(name.rsplit("/", 1)[-1], None) is None:
        return
    for raw in objects:
        with suppress(NotFound):
            await cluster.client().delete(ref_of(_find_kind(cluster, raw), raw))


async def _apply_file(cluster: GuestCluster, content: bytes) -> None:
    for document in read_manifest(content):
        kind = _find_kind(cluster, document)
        namespace = (document["metadata"].get("namespace") or "default") if kind.namespaced else ""
        await cluster.ensure(kind, document, namespace)


def _find_kind(cluster: GuestCluster, document: Raw) -> ApiResource:
    version, kind = str(document.get("apiVersion") or ""), str(document.get("kind") or "")
    type = cluster.api.registry.find_by_gvk(version, kind)
    if type is None:
        raise NotFound(f'no matches for kind "{kind}" in version "{version}"')
    return type.kind
