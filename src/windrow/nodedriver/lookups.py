"""What a configuration refers to on Harvester: asked for once each, judged with all problems at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from windrow.harvester.images import Image, read_image
from windrow.harvester.key_pairs import KeyPair, read_key_pair
from windrow.harvester.kinds import IMAGE, KEY_PAIR, NETWORK
from windrow.harvester.networks import Network, read_network
from windrow.harvester.storage_classes import ClaimModes, StorageClass, read_storage_class
from windrow.kubernetes import requests
from windrow.kubernetes.errors import Forbidden, KubeError, NotFound, is_not_found
from windrow.kubernetes.resources import STORAGE_CLASS, ObjectRef
from windrow.nodedriver.configuration import Configuration
from windrow.nodedriver.problems import Problem
from windrow.nodedriver.steps import Gather, Talk
from windrow.nodedriver.wishes import DiskWish

READERS = {
    IMAGE: read_image,
    NETWORK: read_network,
    KEY_PAIR: read_key_pair,
    STORAGE_CLASS: read_storage_class,
}

GIB = 2**30


@dataclass(frozen=True, slots=True)
class Found:
    """The readings of what exists, and the errors of what could not be read."""

    readings: Mapping[ObjectRef, object] = field(default_factory=dict)
    errors: Mapping[ObjectRef, KubeError] = field(default_factory=dict)

    def image(self, ref: ObjectRef) -> Image | None:
        found = self.readings.get(ref)
        return found if isinstance(found, Image) else None

    def key_pair(self, ref: ObjectRef) -> KeyPair | None:
        found = self.readings.get(ref)
        return found if isinstance(found, KeyPair) else None

    @property
    def class_modes(self) -> Mapping[str, ClaimModes]:
        """How disks are claimed, by storage class; those that were not looked up are left out."""
        return {each.name: each.modes for each in self.readings.values() if isinstance(each, StorageClass)}


def image_ref(configuration: Configuration, name: str) -> ObjectRef:
    namespace, image = configuration.qualified(name)
    return IMAGE.ref(image, namespace)


def key_pair_ref(configuration: Configuration) -> ObjectRef:
    namespace, name = configuration.qualified(configuration.key_pair_name)
    return KEY_PAIR.ref(name, namespace)


def needed_to_build(configuration: Configuration) -> list[ObjectRef]:
    """What the VM cannot be written without: images, for their classes, classes, for how disks are claimed from them,
    and the key pair, for its key."""
    refs = [image_ref(configuration, disk.image) for disk in configuration.disks if disk.image]
    if configuration.key_pair_name:
        refs.append(key_pair_ref(configuration))
    refs += [
        STORAGE_CLASS.ref(disk.storage_class)
        for disk in configuration.disks
        if disk.storage_class and not disk.image
    ]
    return refs


def needed_to_run(configuration: Configuration) -> list[ObjectRef]:
    """Everything the VM refers to."""
    refs = needed_to_build(configuration)
    for card in configuration.cards:
        namespace, name = configuration.qualified(card.network)
        if name:
            refs.append(NETWORK.ref(name, namespace))
    return refs


def look_up(refs: Sequence[ObjectRef]) -> Talk[Found]:
    """Read each of `refs` once, and the storage classes of images that are not Longhorn's. Absence and lack of rights
    are findings; every other error is raised."""
    found = yield from _read(refs)
    images = [each for each in found.readings.values() if isinstance(each, Image)]
    classes = {
        STORAGE_CLASS.ref(image.storage_class) for image in images if image.is_cdi and image.storage_class
    }
    more = yield from _read(sorted(classes - found.readings.keys() - found.errors.keys(), key=str))
    return Found({**found.readings, **more.readings}, {**found.errors, **more.errors})


def _read(refs: Sequence[ObjectRef]) -> Talk[Found]:
    wanted = tuple(dict.fromkeys(refs))
    if not wanted:
        return Found()
    answers = yield Gather(tuple(requests.get(ref) for ref in wanted), "look up what the machine refers to")
    readings: dict[ObjectRef, object] = {}
    errors: dict[ObjectRef, KubeError] = {}
    for ref, answer in zip(wanted, answers, strict=True):
        if not isinstance(answer, KubeError):
            readings[ref] = READERS[ref.kind](answer)
        elif isinstance(answer, Forbidden) or is_not_found(answer, ref.name):
            errors[ref] = answer
        else:
            raise answer
    return Found(readings, errors)


def judge(configuration: Configuration, found: Found) -> Iterator[Problem]:
    """What is wrong with the things found, or with their absence. Things not looked up are passed over."""
    yield from _judge_images(configuration, found)
    for ref in needed_to_run(configuration):
        if ref in found.errors:
            yield _unreadable(ref, found.errors[ref])
            continue
        match found.readings.get(ref):
            case Network() as network:
                yield from _judge_network(network)
            case StorageClass(is_reserved=True, name=name):
                yield Problem(f"storage class {name} is Harvester's own", "name another", "diskInfo")
            case KeyPair(is_validated=False):
                yield Problem(
                    f"keypair {ref.namespace}/{ref.name} is not validated",
                    "wait until Harvester has checked it, or correct its public key",
                    "keyPairName",
                )


def _judge_images(configuration: Configuration, found: Found) -> Iterator[Problem]:
    for name, disk in zip(configuration.disk_names, configuration.disks, strict=True):
        image = found.image(image_ref(configuration, disk.image)) if disk.image else None
        if image is not None:
            yield from _judge_image(image, name, disk)


def _judge_image(image: Image, disk_name: str, disk: DiskWish) -> Iterator[Problem]:
    called = f"image {image.ref.namespace}/{image.ref.name} ({image.display_name})"
    if image.gave_up:
        yield Problem(
            f"{called} failed to import: {image.trouble or 'Harvester does not say why'}",
            "upload it again, or name another image",
            "diskInfo",
        )
    elif not image.is_ready:
        yield Problem(
            f"{called} is not ready: {image.progress} % imported", "wait for the import to end", "diskInfo"
        )
    if image.is_iso and not disk.is_cdrom:
        yield Problem(
            f"{called} is an installer disc (ISO), from which no machine boots by itself",
            "name a cloud image (qcow2, img or raw)",
            "diskInfo",
        )
    if image.is_iso is None:
        yield Problem(
            f"nothing tells whether {called} is a cloud image or an installer disc",
            "label it harvesterhci.io/image-type: raw_qcow2 if it is a cloud image",
            "diskInfo",
            "warning",
        )
    if 0 < disk.size_gib * GIB < image.virtual_size:
        yield Problem(
            f"{disk_name} has {disk.size_gib} GiB, and {called} needs {-(-image.virtual_size // GIB)} GiB",
            "make the disk larger",
            "diskInfo",
        )


def _judge_network(network: Network) -> Iterator[Problem]:
    called = f"network {network.ref.namespace}/{network.ref.name}"
    if network.is_for_storage:
        yield Problem(f"{called} is Harvester's storage network", "name a VM network", "networkInfo")
    if network.is_ready is False:
        yield Problem(
            f"{called} is not ready: its cluster network {network.cluster_network or '?'} is not",
            "repair the cluster network in Harvester",
            "networkInfo",
        )


_CALLED = {
    IMAGE: ("image", "diskInfo", "upload it to Harvester, or name another"),
    NETWORK: ("network", "networkInfo", "create it in Harvester, or name another"),
    STORAGE_CLASS: ("storage class", "diskInfo", "create it in Harvester, or name another"),
    KEY_PAIR: ("key pair", "keyPairName", "create it in Harvester, or name another"),
}


def _unreadable(ref: ObjectRef, error: KubeError) -> Problem:
    called, field, hint = _CALLED[ref.kind]
    name = f"{ref.namespace}/{ref.name}" if ref.namespace else ref.name
    if isinstance(error, NotFound):
        return Problem(f"{called} {name} does not exist", hint, field)
    # Harvester checks the caller's right to an image when a VM is made; the others it does not.
    needed = ref.kind in (IMAGE, KEY_PAIR)
    return Problem(
        f"{called} {name} may not be read with this credential: {error.message}",
        "give its user the right to get it",
        field,
        "error" if needed else "warning",
    )
