"""What `windrow driver` changes: add, enable, disable, remove. Each stays until the manager has done it, or says why not."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from windrow.catalogue.faults import Fault
from windrow.catalogue.kinds import CLUSTER, MACHINE, NODE_DRIVER
from windrow.catalogue.reading import (
    DELETED,
    find_checksum_fault,
    find_url_fault,
    read_named_kinds,
    read_used_driver,
)
from windrow.cli import exits, reach
from windrow.cli.complaints import Complaint, complaint_about, render_complaint, together
from windrow.cli.edge import Edge
from windrow.cli.reach import Reached
from windrow.cli.screens.drivers import UNSEEN, DriverView, read_view
from windrow.cli.screens.lines import wrap
from windrow.kube.errors import NotFound, says_gone
from windrow.kube.objects import Raw, new_object, uid_of


async def list_drivers(manager: Reached) -> list[Raw]:
    try:
        return await manager.client.list(NODE_DRIVER)
    except NotFound as error:
        raise _no_catalogue() from error


async def get_driver(manager: Reached, name: str) -> Raw:
    """The NodeDriver. Complains where there is none."""
    try:
        return await manager.client.get(NODE_DRIVER.ref(name))
    except NotFound as error:
        if not says_gone(error, name):
            raise _no_catalogue() from error
        raise Complaint(
            f"There is no node driver {name!r}.", "See them: windrow driver list", exits.NOT_FOUND
        ) from error


def _no_catalogue() -> Complaint:
    return Complaint(
        "This management API knows no node drivers.",
        "Start it with `windrow serve` of this release.",
        exits.NOT_FOUND,
    )


# -- add -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Source:
    """Where a driver comes from, and the SHA-256 of that."""

    url: str
    checksum: str


def find_source(given: argparse.Namespace, edge: Edge) -> Source:
    """What was given, completed. Complains about what can be known before anything is sent."""
    checksum = (given.checksum or "").removeprefix("sha256:").lower()  # as release pages write it
    if given.file:
        return _source_of_file(given.file, checksum, edge)
    faults = [*find_url_fault(given.url, files_allowed=True), *find_checksum_fault(checksum)]
    if given.url.startswith("file:"):
        faults.append(
            Fault(
                "--url names a file",
                "name it with --file, for a manager that runs with --driver-files",
                "Refused",
            )
        )
    if faults:
        raise together([_as_given(fault) for fault in faults])
    return Source(given.url, checksum)


def _source_of_file(name: str, checksum: str, edge: Edge) -> Source:
    import hashlib

    path = (edge.cwd / name).resolve()
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if checksum not in ("", found):
        raise Complaint(
            f"The SHA-256 of {name} is {found}, not {checksum}.",
            "Find out which of the two is right.",
            exits.REFUSED,
        )
    return Source(path.as_uri(), found)


def _as_given(fault: Fault) -> Complaint:
    """The fault in the words of the command line."""
    fact = fault.fact.replace("spec.checksum", "--checksum").replace("spec.url", "--url")
    return Complaint(f"{fact}.", f"{fault.cure[:1].upper()}{fault.cure[1:]}.", exits.REFUSED)


async def add(given: argparse.Namespace, edge: Edge, manager: Reached, source: Source) -> int:
    before = {raw["metadata"]["name"]: raw for raw in await list_drivers(manager)}.get(given.name)
    wanted = {"url": source.url, "checksum": source.checksum, "active": True}
    if before is None:
        spec = {"displayName": given.name, "description": given.description, **wanted}
        await manager.client.create(NODE_DRIVER, new_object(NODE_DRIVER, given.name, spec=spec))
        edge.say(f"NodeDriver {given.name} created")
    elif all(before["spec"].get(key) == value for key, value in wanted.items()):
        edge.say(f"NodeDriver {given.name} unchanged")
    else:
        _insist_on_replacing(given, before)
        await manager.client.patch(NODE_DRIVER.ref(given.name), {"spec": wanted})
        edge.say(f"NodeDriver {given.name} changed")
    with _telling_that_it_stays(given.name, edge):
        return await _stay(given, edge, manager, _is_active, f"NodeDriver {given.name} is active")


@contextmanager
def _telling_that_it_stays(name: str, edge: Edge) -> Iterator[None]:
    """However the waiting ends without success, the manager has the record."""
    import asyncio

    stays = Complaint(
        "The record stays.",
        f"Change it: windrow driver add {name} ... --replace; or remove it: windrow driver remove {name}",
    )
    try:
        yield
    except Exception as error:
        found = complaint_about(error)
        if isinstance(found, _Removed):
            raise
        raise Complaint(found.fact, found.cure, found.code, [*found.also, stays]) from error
    except asyncio.CancelledError:  # Ctrl-C
        for line in render_complaint(stays):
            edge.note(line)
        raise


def _insist_on_replacing(given: argparse.Namespace, before: Raw) -> None:
    if before["spec"].get("builtin") is True:
        raise Complaint(
            f"{given.name} is built in, and the manager's next start would undo the change.",
            "Choose another name.",
            exits.REFUSED,
        )
    if not given.replace:
        raise Complaint(
            f"NodeDriver {given.name} is there already, from {before['spec'].get('url')}.",
            "Choose another name, or change that one with --replace.",
            exits.REFUSED,
        )


# -- enable, disable, remove ---------------------------------------------------------------------------------------


async def enable(given: argparse.Namespace, edge: Edge, manager: Reached) -> int:
    await _switch(given, edge, manager, True)
    return await _stay(given, edge, manager, _is_active, f"NodeDriver {given.name} is active")


async def disable(given: argparse.Namespace, edge: Edge, manager: Reached) -> int:
    raw = await _switch(given, edge, manager, False)
    code = await _stay(given, edge, manager, _is_inactive, f"NodeDriver {given.name} is not active")
    if raw["spec"].get("builtin") is True:
        edge.note(f"{given.name} is built in: the manager's next start enables it again.")
    return code


async def _switch(given: argparse.Namespace, edge: Edge, manager: Reached, active: bool) -> Raw:
    raw = await get_driver(manager, given.name)
    if raw["spec"].get("active") is not active:
        raw = await manager.client.patch(NODE_DRIVER.ref(given.name), {"spec": {"active": active}})
        edge.say(f"NodeDriver {given.name} changed")
    else:
        edge.say(f"NodeDriver {given.name} unchanged")
    return raw


async def remove(given: argparse.Namespace, edge: Edge, manager: Reached) -> int:
    raw = await get_driver(manager, given.name)
    await _insist_on_unused(raw, manager)
    uid = uid_of(raw)
    await manager.client.delete(NODE_DRIVER.ref(given.name), uid=uid)
    edge.say(f"NodeDriver {given.name} is being removed")

    def is_gone(raw: Raw | None) -> bool:
        return raw is None or uid_of(raw) != uid

    return await _stay(given, edge, manager, is_gone, f"NodeDriver {given.name} is gone")


async def _insist_on_unused(raw: Raw, manager: Reached) -> None:
    """A deletion cannot be taken back, so it is ordered only where it can be carried out."""
    view = read_view(raw)
    if view.builtin:
        raise Complaint(
            f"{view.name} is built in, and the manager's next start would bring it back.",
            f"Switch it off: windrow driver disable {view.name}",
            exits.REFUSED,
        )
    clusters = await manager.client.list(CLUSTER) if view.kind else []
    users = [reach.named(one) for one in clusters if view.kind in read_named_kinds(one)]
    if users:
        raise Complaint(
            f"{view.kind} is used by {', '.join(sorted(users))}.",
            "Delete these clusters first: the driver is needed to remove their machines.",
            exits.REFUSED,
        )
    machines = await manager.client.list(MACHINE) if view.driver else []
    made = [reach.named(one) for one in machines if read_used_driver(one) == view.driver]
    if made:
        raise Complaint(
            f"Driver {view.driver} made {', '.join(sorted(made))}.",
            "Wait until these machines are gone: the driver is needed to remove them.",
            exits.REFUSED,
        )


# -- staying -------------------------------------------------------------------------------------------------------

Judge = Callable[[Any], bool]


class _Removed(Complaint):
    """Somebody else removed what is waited for."""


def _is_active(raw: Raw | None) -> bool:
    view = _view(raw)
    active, downloaded = view.find("Active"), view.find("Downloaded")
    if not view.is_observed or active is None:
        return False
    if downloaded is not None and downloaded.reason == "ServerAway":
        return False  # the manager tries again by itself
    if active.status == "False" or active.reason == "OlderInUse":
        raise _failed(view)
    return active.status == "True" and active.reason != "Updating"


def _is_inactive(raw: Raw | None) -> bool:
    view = _view(raw)
    active = view.find("Active")
    return view.is_observed and active is not None and active.status == "False"


def _view(raw: Raw | None) -> DriverView:
    if raw is None:
        raise _Removed("It was removed meanwhile.", "See what is there: windrow driver list", exits.FAILED)
    return read_view(raw)


def _failed(view: DriverView) -> Complaint:
    active = view.find("Active")
    code = exits.REFUSED if active is not None and active.reason == "Refused" else exits.FAILED
    return Complaint(
        f"{view.name}: {view.message}", f"See how it stands: windrow driver show {view.name}", code
    )


async def _stay(given: argparse.Namespace, edge: Edge, manager: Reached, judge: Judge, done: str) -> int:
    """Return once `judge` is satisfied with the object (None when it is gone), telling what it waits for."""
    if given.no_wait:
        return exits.OK
    import asyncio

    from windrow.cli.watching import look_until

    said: list[str] = []

    async def look() -> bool:
        raw = await manager.client.find(NODE_DRIVER.ref(given.name))
        if judge(raw):
            return True
        if raw is not None:
            _tell(read_view(raw), said, edge)
        return False

    try:
        async with asyncio.timeout(given.timeout.total_seconds()):
            await look_until(look, manager, kinds=(NODE_DRIVER,))
    except TimeoutError:
        raise Complaint(
            f"Waited {given.timeout.total_seconds():.0f} s in vain: {said[-1] if said else UNSEEN}.",
            f"See how it stands: windrow driver show {given.name}",
            exits.TIMED_OUT,
        ) from None
    edge.say(done)
    return exits.OK


def _tell(view: DriverView, said: list[str], edge: Edge) -> None:
    message = view.message
    # What was said before the order, and that it was given, whoever gave it need not hear.
    if view.is_observed and message not in said and message not in (DELETED, UNSEEN):
        said.append(message)
        for part in wrap(message, edge.width, rest="  "):
            edge.note(part)
