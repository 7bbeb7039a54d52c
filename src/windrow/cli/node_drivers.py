"""Changes of NodeDrivers: add, enable, disable, remove. Each waits until the manager has acted on it."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from windrow.cli import connect, exit_codes
from windrow.cli.connect import Connection
from windrow.cli.context import CliContext
from windrow.cli.errors import CliError, combine, render_error, to_cli_error
from windrow.cli.manifests import print_notes
from windrow.cli.output.drivers import NOT_OBSERVED, DriverView, read_view
from windrow.drivers.api import (
    CLUSTER,
    DELETED_MESSAGE,
    MACHINE,
    NODE_DRIVER,
    Fault,
    find_checksum_faults,
    find_url_faults,
    read_machine_config_kinds,
    read_machine_driver,
)
from windrow.kubernetes.errors import NotFound, is_not_found
from windrow.kubernetes.objects import Raw, new_object, uid_of


async def list_drivers(manager: Connection) -> list[Raw]:
    try:
        return await manager.client.list(NODE_DRIVER)
    except NotFound as error:
        raise _no_node_drivers() from error


async def get_driver(manager: Connection, name: str) -> Raw:
    """The NodeDriver. Raises CliError where there is none."""
    try:
        return await manager.client.get(NODE_DRIVER.ref(name))
    except NotFound as error:
        if not is_not_found(error, name):
            raise _no_node_drivers() from error
        raise CliError(
            f"NodeDriver {name!r} not found.", "List them: windrow driver list", exit_codes.NOT_FOUND
        ) from error


def _no_node_drivers() -> CliError:
    return CliError(
        "This management API does not have the kind NodeDriver.",
        "Run this release there: windrow serve",
        exit_codes.NOT_FOUND,
    )


# -- add -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Source:
    """The URL of a driver, and the SHA-256 of the download."""

    url: str
    checksum: str


def find_source(args: argparse.Namespace, context: CliContext) -> Source:
    """The source that the flags describe. Raises CliError for what can be known before anything is sent."""
    checksum = (args.checksum or "").removeprefix("sha256:").lower()  # as release pages write it
    if args.file:
        return _source_of_file(args.file, checksum, context)
    faults = [*find_url_faults(args.url, files_allowed=True), *find_checksum_faults(checksum)]
    if args.url.startswith("file:"):
        faults.append(
            Fault(
                "--url names a file",
                "name it with --file, for a manager that runs with --allow-file-urls",
                "InvalidSpec",
            )
        )
    if faults:
        raise combine([_in_flag_words(fault) for fault in faults])
    return Source(args.url, checksum)


def _source_of_file(name: str, checksum: str, context: CliContext) -> Source:
    import hashlib

    path = (context.cwd / name).resolve()
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if checksum not in ("", found):
        raise CliError(
            f"The SHA-256 of {name} is {found}, not {checksum}.",
            "Check which of the two is right.",
            exit_codes.REFUSED,
        )
    return Source(path.as_uri(), found)


def _in_flag_words(fault: Fault) -> CliError:
    """The problem with flags in place of fields."""
    message = fault.message.replace("spec.checksum", "--checksum").replace("spec.url", "--url")
    return CliError(f"{message}.", f"{fault.hint[:1].upper()}{fault.hint[1:]}.", exit_codes.REFUSED)


async def add(args: argparse.Namespace, context: CliContext, manager: Connection, source: Source) -> int:
    before = {raw["metadata"]["name"]: raw for raw in await list_drivers(manager)}.get(args.name)
    wanted = {"url": source.url, "checksum": source.checksum, "active": True}
    if before is None:
        spec = {"displayName": args.name, "description": args.description, **wanted}
        await manager.client.create(NODE_DRIVER, new_object(NODE_DRIVER, args.name, spec=spec))
        context.print(f"NodeDriver {args.name} created")
    elif all(before["spec"].get(key) == value for key, value in wanted.items()):
        context.print(f"NodeDriver {args.name} unchanged")
    else:
        _require_replace(args, before)
        await manager.client.patch(NODE_DRIVER.ref(args.name), {"spec": wanted})
        context.print(f"NodeDriver {args.name} changed")
    with _note_that_record_stays(args.name, context):
        return await _wait_until(args, context, manager, _is_active, f"NodeDriver {args.name} is active")


@contextmanager
def _note_that_record_stays(name: str, context: CliContext) -> Iterator[None]:
    """A failure inside the block also says that the NodeDriver was created."""
    import asyncio

    stays = CliError(
        "The NodeDriver was created.",
        f"Change it: windrow driver add {name} ... --replace; or remove it: windrow driver remove {name}",
    )
    try:
        yield
    except Exception as error:
        found = to_cli_error(error)
        if isinstance(found, _Removed):
            raise
        raise CliError(found.message, found.hint, found.code, [*found.others, stays]) from error
    except asyncio.CancelledError:  # Ctrl-C
        for line in render_error(stays):
            context.print_note(line)
        raise


def _require_replace(args: argparse.Namespace, before: Raw) -> None:
    if before["spec"].get("builtin") is True:
        raise CliError(
            f"NodeDriver {args.name} is built in: the manager would undo the change when it restarts.",
            "Choose another name.",
            exit_codes.REFUSED,
        )
    if not args.replace:
        raise CliError(
            f"NodeDriver {args.name} exists already, with URL {before['spec'].get('url')}.",
            "Choose another name, or change it with --replace.",
            exit_codes.REFUSED,
        )


# -- enable, disable, remove ---------------------------------------------------------------------------------------


async def enable(args: argparse.Namespace, context: CliContext, manager: Connection) -> int:
    await _switch(args, context, manager, True)
    return await _wait_until(args, context, manager, _is_active, f"NodeDriver {args.name} is active")


async def disable(args: argparse.Namespace, context: CliContext, manager: Connection) -> int:
    raw = await _switch(args, context, manager, False)
    code = await _wait_until(args, context, manager, _is_inactive, f"NodeDriver {args.name} is not active")
    if raw["spec"].get("builtin") is True:
        context.print_note(
            f"NodeDriver {args.name} is built in: the manager enables it again when it restarts."
        )
    return code


async def _switch(args: argparse.Namespace, context: CliContext, manager: Connection, active: bool) -> Raw:
    raw = await get_driver(manager, args.name)
    if raw["spec"].get("active") is not active:
        raw = await manager.client.patch(NODE_DRIVER.ref(args.name), {"spec": {"active": active}})
        context.print(f"NodeDriver {args.name} changed")
    else:
        context.print(f"NodeDriver {args.name} unchanged")
    return raw


async def remove(args: argparse.Namespace, context: CliContext, manager: Connection) -> int:
    raw = await get_driver(manager, args.name)
    await _require_unused(raw, manager)
    uid = uid_of(raw)
    await manager.client.delete(NODE_DRIVER.ref(args.name), uid=uid)
    context.print(f"NodeDriver {args.name} is being removed")

    def is_gone(raw: Raw | None) -> bool:
        return raw is None or uid_of(raw) != uid

    return await _wait_until(args, context, manager, is_gone, f"NodeDriver {args.name} is gone")


async def _require_unused(raw: Raw, manager: Connection) -> None:
    """A deletion cannot be undone, so it is requested only where the manager can finish it."""
    view = read_view(raw)
    if view.builtin:
        raise CliError(
            f"NodeDriver {view.name} is built in: the manager would create it again when it restarts.",
            f"Disable it: windrow driver disable {view.name}",
            exit_codes.REFUSED,
        )
    clusters = await manager.client.list(CLUSTER) if view.kind else []
    users = [connect.full_name(one) for one in clusters if view.kind in read_machine_config_kinds(one)]
    if users:
        raise CliError(
            f"{view.kind} is used by {', '.join(sorted(users))}.",
            "Delete these clusters first: the driver is needed to remove their machines.",
            exit_codes.REFUSED,
        )
    machines = await manager.client.list(MACHINE) if view.driver else []
    made = [connect.full_name(one) for one in machines if read_machine_driver(one) == view.driver]
    if made:
        raise CliError(
            f"Driver {view.driver} created {', '.join(sorted(made))}.",
            "Wait until these machines are gone: the driver is needed to remove them.",
            exit_codes.REFUSED,
        )


# -- waiting -------------------------------------------------------------------------------------------------------

Predicate = Callable[[Any], bool]


class _Removed(CliError):
    """The NodeDriver was deleted while the command waited for it."""


def _is_active(raw: Raw | None) -> bool:
    view = _view(raw)
    active, downloaded = view.find("Active"), view.find("Downloaded")
    if not view.is_observed or active is None:
        return False
    if downloaded is not None and downloaded.reason == "ServerUnreachable":
        return False  # the manager tries again
    if active.status == "False" or active.reason == "UpdateFailed":
        raise _failed(view)
    return active.status == "True" and active.reason != "Updating"


def _is_inactive(raw: Raw | None) -> bool:
    view = _view(raw)
    active = view.find("Active")
    return view.is_observed and active is not None and active.status == "False"


def _view(raw: Raw | None) -> DriverView:
    if raw is None:
        raise _Removed(
            "The NodeDriver was deleted meanwhile.", "List them: windrow driver list", exit_codes.FAILED
        )
    return read_view(raw)


def _failed(view: DriverView) -> CliError:
    active = view.find("Active")
    code = exit_codes.REFUSED if active is not None and active.reason == "InvalidSpec" else exit_codes.FAILED
    return CliError(
        f"{view.name}: {view.message}", f"See its conditions: windrow driver show {view.name}", code
    )


async def _wait_until(
    args: argparse.Namespace, context: CliContext, manager: Connection, predicate: Predicate, done: str
) -> int:
    """Return once `predicate` holds for the NodeDriver (None when it is gone); prints what it waits for."""
    if args.no_wait:
        return exit_codes.OK
    import asyncio

    from windrow.cli.wait import watch_until

    printed: list[str] = []

    async def look() -> bool:
        raw = await manager.client.find(NODE_DRIVER.ref(args.name))
        if predicate(raw):
            return True
        if raw is not None:
            _print_progress(read_view(raw), printed, context)
        return False

    try:
        async with asyncio.timeout(args.timeout.total_seconds()):
            await watch_until(look, manager, kinds=(NODE_DRIVER,))
    except TimeoutError:
        raise CliError(
            f"Waited {args.timeout.total_seconds():.0f} s for NodeDriver {args.name}: {printed[-1] if printed else NOT_OBSERVED}.",
            f"See its conditions: windrow driver show {args.name}",
            exit_codes.TIMED_OUT,
        ) from None
    context.print(done)
    return exit_codes.OK


def _print_progress(view: DriverView, printed: list[str], context: CliContext) -> None:
    message = view.message
    # Messages of before the change, and that the change was requested, are no news here.
    if view.is_observed and message not in printed and message not in (DELETED_MESSAGE, NOT_OBSERVED):
        printed.append(message)
        print_notes([message], context)
