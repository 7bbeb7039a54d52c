"""The objects on Harvester that a configuration refers to: read once each, checked with all problems at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches

from windrow.harvester.problems import Problem
from windrow.harvester.references import (
    SERVER_VERSION,
    Image,
    KeyPair,
    Network,
    Release,
    read_image,
    read_key_pair,
    read_network,
    read_release,
)
from windrow.harvester.resources import IMAGE, KEY_PAIR, NETWORK, SETTING
from windrow.harvester.volumes import ClaimModes, StorageClass, read_storage_class
from windrow.kubernetes import requests
from windrow.kubernetes.errors import Forbidden, KubeError, NotFound, is_not_found
from windrow.kubernetes.objects import objects_at
from windrow.kubernetes.resources import NAMESPACE, STORAGE_CLASS, ObjectRef
from windrow.nodedriver.config import Configuration
from windrow.nodedriver.devices import DiskSpec
from windrow.nodedriver.effects import Gather, Operation
from windrow.nodedriver.validate.hosts import find_host_problems, read_offers

READERS = {
    IMAGE: read_image,
    NETWORK: read_network,
    KEY_PAIR: read_key_pair,
    STORAGE_CLASS: read_storage_class,
    SETTING: read_release,
}

# What a Harvester is taken for where its release cannot be read.
ASSUMED = Release("v1.8")

GIB = 2**30
MAX_IMAGES = 500  # that are read to find the one that was meant


@dataclass(frozen=True, slots=True)
class ReferencedObjects:
    """The readings of those that exist, and the errors of those that could not be read."""

    readings: Mapping[ObjectRef, object] = field(default_factory=dict)
    errors: Mapping[ObjectRef, KubeError] = field(default_factory=dict)

    def image(self, ref: ObjectRef) -> Image | None:
        found = self.readings.get(ref)
        return found if isinstance(found, Image) else None

    def key_pair(self, ref: ObjectRef) -> KeyPair | None:
        found = self.readings.get(ref)
        return found if isinstance(found, KeyPair) else None

    @property
    def namespaces(self) -> frozenset[str]:
        """Those in which an object was read, which therefore exist."""
        return frozenset(ref.namespace for ref in self.readings if ref.namespace)

    @property
    def release(self) -> Release:
        found = self.readings.get(SERVER_VERSION)
        return found if isinstance(found, Release) else ASSUMED

    @property
    def class_modes(self) -> Mapping[str, ClaimModes]:
        """Access and volume modes by storage class; classes that were not read are left out."""
        return {each.name: each.modes for each in self.readings.values() if isinstance(each, StorageClass)}


def image_ref(configuration: Configuration, name: str) -> ObjectRef:
    namespace, image = configuration.qualified(name)
    return IMAGE.ref(image, namespace)


def key_pair_ref(configuration: Configuration) -> ObjectRef:
    namespace, name = configuration.qualified(configuration.key_pair_name)
    return KEY_PAIR.ref(name, namespace)


def references_to_build(configuration: Configuration) -> list[ObjectRef]:
    """What the VM cannot be written without: images, for their classes, classes, for how disks are claimed from them,
    the key pair, for its key, and the release, for where vGPUs are."""
    refs = [image_ref(configuration, disk.image) for disk in configuration.disks if disk.image]
    if configuration.key_pair_name:
        refs.append(key_pair_ref(configuration))
    refs += [
        STORAGE_CLASS.ref(disk.storage_class)
        for disk in configuration.disks
        if disk.storage_class and not disk.image
    ]
    if configuration.vgpu_info:
        refs.append(SERVER_VERSION)
    return refs


def all_references(configuration: Configuration) -> list[ObjectRef]:
    """Everything the VM refers to."""
    refs = references_to_build(configuration)
    for nic in configuration.nics:
        namespace, name = configuration.qualified(nic.network)
        if name:
            refs.append(NETWORK.ref(name, namespace))
    return refs


def read_references(refs: Sequence[ObjectRef]) -> Operation[ReferencedObjects]:
    """Read each of `refs` once, and the storage classes of images that are not Longhorn's. Absence and lack of rights
    are recorded; every other error is raised."""
    objects = yield from _read(refs)
    images = [each for each in objects.readings.values() if isinstance(each, Image)]
    classes = {
        STORAGE_CLASS.ref(image.storage_class) for image in images if image.is_cdi and image.storage_class
    }
    classes_found = yield from _read(
        sorted(classes - objects.readings.keys() - objects.errors.keys(), key=str)
    )
    return ReferencedObjects(
        {**objects.readings, **classes_found.readings}, {**objects.errors, **classes_found.errors}
    )


def _read(refs: Sequence[ObjectRef]) -> Operation[ReferencedObjects]:
    unique = tuple(dict.fromkeys(refs))
    if not unique:
        return ReferencedObjects()
    answers = yield Gather(tuple(requests.get(ref) for ref in unique), "read what the machine refers to")
    readings: dict[ObjectRef, object] = {}
    errors: dict[ObjectRef, KubeError] = {}
    for ref, answer in zip(unique, answers, strict=True):
        if not isinstance(answer, KubeError):
            readings[ref] = READERS[ref.kind](answer)
        elif isinstance(answer, Forbidden) or is_not_found(answer, ref.name):
            errors[ref] = answer
        else:
            raise answer
    return ReferencedObjects(readings, errors)


def check(configurations: Sequence[Configuration], server: str = "") -> Operation[list[Problem]]:
    """Read everything that the configurations need of Harvester, once each, and report every problem once. `server` is its
    address, for sentences.

    `rules.find_problems` checks a configuration by itself; this checks it against Harvester.
    """
    found = yield from read_references([ref for each in configurations for ref in all_references(each)])
    problems = find_reference_problems(configurations, found)
    problems = yield from name_near_images(problems, found)
    problems += yield from _find_missing_namespaces(configurations, found.namespaces, server)
    problems += find_host_problems(configurations, (yield from read_offers(configurations)))
    return list(dict.fromkeys(problems))


def name_near_images(problems: Sequence[Problem], found: ReferencedObjects) -> Operation[list[Problem]]:
    """The problems, that an image does not exist with the one that may be meant: its display name is written, or nearly its
    name. Asks only where one is absent."""
    absent = [ref for ref, error in found.errors.items() if ref.kind == IMAGE and isinstance(error, NotFound)]
    if not absent:
        return list(problems)
    namespaces = sorted({ref.namespace for ref in absent})
    lists = tuple(requests.list_(IMAGE, namespace, limit=MAX_IMAGES) for namespace in namespaces)
    answers = yield Gather(lists, "read which images there are instead")
    images = [
        read_image(raw)
        for answer in answers
        if isinstance(answer, Mapping)
        for raw in objects_at(answer, "items")
    ]
    hints = {
        _unreadable(ref, found.errors[ref]): near
        for ref in absent
        if (near := _find_near_image(ref, [one for one in images if one.ref.namespace == ref.namespace]))
    }
    return [replace(one, hint=f"write {hints[one]}") if one in hints else one for one in problems]


def _find_near_image(wanted: ObjectRef, images: Sequence[Image]) -> str:
    """`namespace/name` of the image, and its display name; "" where none is near."""
    by_name = {one.ref.name: one for one in images} | {
        one.display_name: one for one in images if one.display_name
    }
    near = get_close_matches(wanted.name, by_name, n=1, cutoff=0.8)
    if not near:
        return ""
    image = by_name[near[0]]
    shown = (
        ""
        if image.display_name in ("", image.ref.name)
        else f", which Harvester shows as {image.display_name}"
    )
    return f"{image.ref.namespace}/{image.ref.name}{shown}"


def _find_missing_namespaces(
    configurations: Sequence[Configuration], existing: frozenset[str], server: str
) -> Operation[list[Problem]]:
    """A problem for each namespace that does not exist; `existing` are known to. Namespaces are never created: Harvester decides
    who may create VMs in which."""
    names = sorted({configuration.vm_namespace for configuration in configurations} - existing - {""})
    if not names:
        return []
    answers = yield Gather(tuple(requests.get(NAMESPACE.ref(name)) for name in names), "read the namespaces")
    problems = []
    for name, answer in zip(names, answers, strict=True):
        match answer:
            case NotFound():
                message = f'namespace "{name}" does not exist on Harvester {server}'.rstrip()
                problems.append(Problem(message, "create it there, or correct vmNamespace", "vmNamespace"))
            case Forbidden():
                continue  # a user that may create VMs in a namespace need not be allowed to get it
            case KubeError():
                raise answer
    return problems


def find_reference_problems(
    configurations: Sequence[Configuration], found: ReferencedObjects
) -> list[Problem]:
    """Every problem of the objects that the configurations refer to, once each."""
    problems = [problem for each in configurations for problem in check_references(each, found)]
    return list(dict.fromkeys(problems))


def check_references(configuration: Configuration, references: ReferencedObjects) -> Iterator[Problem]:
    """What is wrong with the objects, or with their absence. Objects that were not read are skipped."""
    yield from _check_images(configuration, references)
    for ref in all_references(configuration):
        if ref in references.errors:
            yield _unreadable(ref, references.errors[ref])
            continue
        match references.readings.get(ref):
            case Network() as network:
                yield from _check_network(network)
            case StorageClass(is_reserved=True, name=name):
                yield Problem(f"storage class {name} is Harvester's own", "name another", "diskInfo")
            case KeyPair(is_validated=False):
                yield Problem(
                    f"keypair {ref.namespace}/{ref.name} is not validated",
                    "wait until Harvester has checked it, or correct its public key",
                    "keyPairName",
                )


def _check_images(configuration: Configuration, references: ReferencedObjects) -> Iterator[Problem]:
    for name, disk in zip(configuration.disk_names, configuration.disks, strict=True):
        image = references.image(image_ref(configuration, disk.image)) if disk.image else None
        if image is not None:
            yield from _check_image(image, name, disk)


def _check_image(image: Image, disk_name: str, disk: DiskSpec) -> Iterator[Problem]:
    described = f"image {image.ref.namespace}/{image.ref.name} ({image.display_name})"
    if image.import_failed:
        yield Problem(
            f"{described} failed to import: {image.failure or 'without a message from Harvester'}",
            "upload it again, or name another image",
            "diskInfo",
        )
    elif not image.is_ready:
        yield Problem(
            f"{described} is not ready: {image.progress} % imported", "wait for the import to end", "diskInfo"
        )
    if image.is_iso and not disk.is_cdrom:
        yield Problem(
            f"{described} is an installer disc (ISO), from which no machine boots by itself",
            "name a cloud image (qcow2, img or raw)",
            "diskInfo",
        )
    if image.is_iso is None:
        yield Problem(
            f"{described} may be a cloud image or an installer disc (ISO): label, URL and name do not show which",
            "label it harvesterhci.io/image-type: raw_qcow2 if it is a cloud image",
            "diskInfo",
            "warning",
        )
    if 0 < disk.size_gib * GIB < image.virtual_size:
        yield Problem(
            f"{disk_name} has {disk.size_gib} GiB, and {described} needs {-(-image.virtual_size // GIB)} GiB",
            "make the disk larger",
            "diskInfo",
        )


def _check_network(network: Network) -> Iterator[Problem]:
    described = f"network {network.ref.namespace}/{network.ref.name}"
    if network.is_for_storage:
        yield Problem(f"{described} is Harvester's storage network", "name a VM network", "networkInfo")
    if network.is_ready is False:
        yield Problem(
            f"{described} is not ready: its cluster network {network.cluster_network or '?'} is not",
            "repair the cluster network in Harvester",
            "networkInfo",
        )


_NOUNS = {
    IMAGE: ("image", "diskInfo", "upload it to Harvester, or name another"),
    NETWORK: ("network", "networkInfo", "create it in Harvester, or name another"),
    STORAGE_CLASS: ("storage class", "diskInfo", "create it in Harvester, or name another"),
    KEY_PAIR: ("key pair", "keyPairName", "create it in Harvester, or name another"),
}


def _unreadable(ref: ObjectRef, error: KubeError) -> Problem:
    if ref == SERVER_VERSION:
        found = "does not exist" if isinstance(error, NotFound) else _may_not_be_read(error)
        return Problem(
            f"setting {ref.name} {found}",
            f"vGPUs are written as Harvester {ASSUMED.version} has them; for another release, give its user the right to get it",
            "vgpuInfo",
            "warning",
        )
    noun, field, hint = _NOUNS[ref.kind]
    name = f"{ref.namespace}/{ref.name}" if ref.namespace else ref.name
    if isinstance(error, NotFound):
        return Problem(f"{noun} {name} does not exist", hint, field)
    # Harvester checks the caller's right to an image when a VM is made; the others it does not.
    needed = ref.kind in (IMAGE, KEY_PAIR)
    return Problem(
        f"{noun} {name} {_may_not_be_read(error)}",
        "give its user the right to get it",
        field,
        "error" if needed else "warning",
    )


def _may_not_be_read(error: KubeError) -> str:
    return f"may not be read with this credential: {error.message}"
