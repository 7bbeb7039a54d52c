"""VM of a machine: its instance, disks, interfaces and the end of its console, as its Harvester has them now.

Read with the machine's credential, for who may get its Secret; when the page is loaded, and then no more.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from windrow.app.describe.causes import HarvesterObjects
from windrow.app.describe.conditions import condition_health, condition_since, list_conditions
from windrow.app.harvester.objects import read_harvester_objects
from windrow.app.harvester.reader import OpenHarvester
from windrow.clusters.api.kinds import MACHINE
from windrow.core.errors import UserError
from windrow.dashboard.pages.page import Page, PageContext
from windrow.harvester.names import IMAGE_ID
from windrow.kubernetes.errors import Forbidden, NotFound
from windrow.kubernetes.objects import Raw, annotations_of, name_of, nested, objects_at

CONSOLE_LINES = 100
MAX_PARTS, MAX_TEXT = 32, 300


@dataclass(frozen=True, slots=True)
class DiskLine:
    """A disk of the VM that is a claim."""

    name: str
    size: str
    storage_class: str
    image: str
    phase: str


@dataclass(frozen=True, slots=True)
class InterfaceLine:
    """An interface as the guest agent and KubeVirt report it."""

    name: str
    network: str
    mac: str
    addresses: str


@dataclass(frozen=True, slots=True)
class VmShown:
    """What was read of a VM and when; or why it could not be."""

    facts: tuple[tuple[str, str], ...] = ()
    disks: tuple[DiskLine, ...] = ()
    interfaces: tuple[InterfaceLine, ...] = ()
    conditions: tuple[Any, ...] = ()
    console: tuple[str, ...] = ()
    is_there: bool = False
    read_at: datetime | None = None
    problem: str = ""
    hint: str = ""


async def vm(context: PageContext) -> Page:
    """The VM of the machine of this namespace and name."""
    namespace, name = context.names
    raw = await context.api.get(MACHINE.ref(name, namespace))
    shown = await _show(context, raw)
    place = _text(raw, "status", "driverConfig", "VMNamespace") or "default"
    full = shlex.quote(f"{namespace}/{name}")
    commands = (
        f"windrow machine console {full}",
        f"windrow why {full}",
        f"kubectl --kubeconfig HARVESTER describe vm {shlex.quote(name)} -n {shlex.quote(place)}",
        f"virtctl --kubeconfig HARVESTER console {shlex.quote(name)} -n {shlex.quote(place)}",
    )
    values = {
        "namespace": namespace,
        "name": name,
        "cluster": _text(raw, "spec", "clusterName"),
        "shown": shown,
    }
    return Page("vm.html", f"VM of {name}", values, "clusters", commands=commands)


async def _show(context: PageContext, raw: Raw) -> VmShown:
    async def work(found: OpenHarvester) -> HarvesterObjects:
        return await read_harvester_objects(found.transport, raw, found.config.server, CONSOLE_LINES)

    try:
        reference = _text(raw, "spec", "credential")
        objects = await context.harvesters.read(context.api, context.user, reference, work)
        return describe_vm(objects, context.now)
    except (Forbidden, NotFound) as error:
        return VmShown(
            problem=error.message, hint="Who may get this Secret sees what Harvester says of the VM."
        )
    except UserError as error:
        return VmShown(problem=error.message, hint=error.hint)
    except (TypeError, ValueError):
        return VmShown(problem="Harvester has objects of another shape than a VM's.", hint="See it there.")


def describe_vm(objects: HarvesterObjects, now: datetime) -> VmShown:
    """What is shown of a VM. Raises TypeError for objects of another shape."""
    if objects.hidden:
        return VmShown(problem=objects.hidden[:MAX_TEXT], hint="Grant the credential the right to get it.")
    if objects.vm is None:
        return VmShown(read_at=now)
    vmi = objects.vmi or {}
    facts = (
        ("VirtualMachine", f"{objects.namespace}/{objects.name}"),
        ("Status", _text(objects.vm, "status", "printableStatus")),
        ("Run strategy", _text(objects.vm, "spec", "runStrategy")),
        ("Host", _text(vmi, "status", "nodeName")),
        ("Instance", _text(vmi, "status", "phase")),
        ("Guest", _text(vmi, "status", "guestOSInfo", "prettyName")),
        ("CPU cores", str(nested(objects.vm, *_DOMAIN, "cpu", "cores", default=""))[:MAX_TEXT]),
        ("Memory", str(nested(objects.vm, *_DOMAIN, "memory", "guest", default=""))[:MAX_TEXT]),
    )
    images = {name_of(image): _text(image, "spec", "displayName") for image in objects.images}
    conditions = [
        (one, condition_health(one), condition_since(one)) for one in list_conditions(objects.vm)[:MAX_PARTS]
    ]
    return VmShown(
        tuple((label, text) for label, text in facts if text),
        tuple(_disk(claim, images) for claim in objects.claims),
        tuple(map(_interface, objects_at(vmi, "status", "interfaces")[:MAX_PARTS])),
        tuple(conditions),
        objects.console,
        True,
        now,
    )


_DOMAIN = ("spec", "template", "spec", "domain")


def _disk(claim: Mapping[str, Any], images: Mapping[str, str]) -> DiskLine:
    image = annotations_of(claim).get(IMAGE_ID, "")
    return DiskLine(
        name_of(claim)[:MAX_TEXT],
        _text(claim, "spec", "resources", "requests", "storage"),
        _text(claim, "spec", "storageClassName"),
        (images.get(image.rpartition("/")[2]) or image)[:MAX_TEXT],
        _text(claim, "status", "phase"),
    )


def _interface(raw: Raw) -> InterfaceLine:
    addresses = raw.get("ipAddresses") or [raw.get("ipAddress") or ""]
    listed = ", ".join(map(str, addresses[:MAX_PARTS])) if isinstance(addresses, list) else ""
    name = _text(raw, "interfaceName")
    return InterfaceLine(name or _text(raw, "name"), _text(raw, "name"), _text(raw, "mac"), listed[:MAX_TEXT])


def _text(raw: Any, *path: str) -> str:
    found = nested(raw, *path, default="")
    return found[:MAX_TEXT] if isinstance(found, str) else ""
