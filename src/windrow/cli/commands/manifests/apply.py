"""Create or change the objects of a manifest. May be repeated.

The manifest may be one written for Rancher, also as `kubectl get -o yaml` prints it (see `windrow import`). The
objects are applied to the management API in the order in which they refer to each other; the cluster manager then
creates the machines. Where `windrow check` finds an error in the manifest, it is printed and nothing is applied; a
field that a kind does not have is such an error, at every level, and so is what a cluster that runs cannot change.
What Harvester or the management API lacks, such as an image or the credential, is a warning: the Cluster waits for it.

Examples:
  windrow apply -f cluster.yaml
  windrow apply -f cluster.yaml --wait --timeout 20m
"""

from __future__ import annotations

import argparse

from windrow.cli import connect, exit_codes, options
from windrow.cli.connect import Connection
from windrow.cli.context import CliContext
from windrow.cli.errors import CliError, combine, to_cli_error
from windrow.cli.manifests import (
    apply_order,
    find_kind,
    place_in_namespace,
    print_notes,
    read_documents,
    unknown_kind_errors,
)
from windrow.cli.output.check_results import print_problems
from windrow.clusters.api.kinds import CLUSTER
from windrow.clusters.api.rancher_import import strip_server_fields
from windrow.kubernetes.errors import KubeError, NotFound
from windrow.kubernetes.objects import Raw
from windrow.kubernetes.resources import ApiResource, ObjectRef, ref_of

FIELD_MANAGER = "windrow-apply"


def arguments(parser: argparse.ArgumentParser) -> None:
    options.add_filenames(parser, "a manifest")
    options.add_wait(parser, "the clusters are ready")
    options.add_connection(parser)


def sort_by_kind(documents: list[Raw]) -> list[tuple[ApiResource, Raw]]:
    """The objects with their kinds, in the order in which they refer to each other. Raises CliError for other kinds."""
    if strangers := unknown_kind_errors(documents):
        raise combine(strangers)
    placed = [(kind, raw) for raw in documents if (kind := find_kind(raw)) is not None]
    return sorted(placed, key=lambda pair: apply_order(pair[0]))


async def _ensure(manager: Connection, ref: ObjectRef, raw: Raw) -> str:
    """Apply the object. Returns created, changed or unchanged."""
    try:
        existing = await manager.client.get(ref)
    except NotFound as error:
        if error.details.get("name") != ref.name:  # the kind, not the object, is unknown
            raise
        existing = None
    # Forced: the fields of the manifest are taken over from other managers (kubectl, a GitOps tool).
    applied = await manager.client.apply(ref, raw, FIELD_MANAGER, force=True, strict=True)
    if existing is None:
        return "created"
    return "unchanged" if _content(existing) == _content(applied) else "changed"


def _content(raw: Raw) -> Raw:
    """The object without managedFields, resourceVersion and status."""
    metadata = {
        key: value
        for key, value in raw["metadata"].items()
        if key not in ("managedFields", "resourceVersion")
    }
    return {**raw, "metadata": metadata, "status": None}


async def passes_check(documents: list[Raw], manager: Connection, context: CliContext) -> bool:
    """Whether the manifest has no error, in itself and as a change of Clusters that exist. Prints every problem, with what
    Harvester and the management API lack, for which the Cluster waits."""
    from windrow.app.check import check_change

    results = await check_change(documents, manager.client)
    if not print_problems(results, context):
        context.print_note("Nothing was changed.")
        return False
    for reason in dict.fromkeys(one.not_asked for one in results if one.not_asked):
        context.print_note(
            f"Harvester was not asked: {reason}. The cluster manager does, and windrow check -f."
        )
    return True


async def send_objects(
    placed: list[tuple[ApiResource, Raw]], manager: Connection, context: CliContext
) -> None:
    """Apply the objects one after the other, and print what became of each."""
    changed = False
    for kind, raw in placed:
        ref = ref_of(kind, raw)
        try:
            took = await _ensure(manager, ref, raw)
        except KubeError as error:
            shown = to_cli_error(error)
            if not changed or shown.code != exit_codes.REFUSED:
                raise
            raise CliError(
                f"{ref} was refused: {shown.message}",
                "The objects listed above were applied. Correct this one, then apply the manifest again.",
            ) from error
        changed = changed or took != "unchanged"
        context.print(f"{ref} {took}")


def run(args: argparse.Namespace, context: CliContext) -> int:
    options.normalize_wait(args)
    documents, notes = strip_server_fields(read_documents(args.filename, context))
    placed = sort_by_kind(documents)
    print_notes(notes, context)

    async def work(manager: Connection) -> int:
        place_in_namespace(documents, args.namespace, manager.namespace)
        if not await passes_check(documents, manager, context):
            return exit_codes.REFUSED
        await send_objects(placed, manager, context)
        clusters = [ref_of(kind, raw) for kind, raw in placed if kind is CLUSTER]
        if args.wait and clusters:
            from windrow.cli import wait

            return await wait.wait_for_ready(manager, clusters, args.timeout, context)
        for ref in clusters:
            context.print_note(f"Follow it: windrow status {ref.namespace}/{ref.name} --watch")
        return exit_codes.OK

    return connect.run_connected(args, context, work)
