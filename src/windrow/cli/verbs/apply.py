"""Create or change what a manifest describes. May be repeated.

Reads what Rancher users have, also as `kubectl get -o yaml` prints it (see `windrow import`). Objects go to the
management API in the order that they need each other; the cluster manager then does the work. What `windrow check`
finds wrong in the manifest itself is told first, and then nothing is sent.

Examples:
  windrow apply cluster.yaml
  windrow apply cluster.yaml --wait --timeout 20m
"""

from __future__ import annotations

import argparse

from windrow.cli import exits, options, reach
from windrow.cli.complaints import Complaint, complaint_about, together
from windrow.cli.edge import Edge
from windrow.cli.manifests import complaints_about_kinds, find_kind, place_of, read_documents, say_notes
from windrow.cli.reach import Reached
from windrow.cli.screens.lines import plain
from windrow.cli.screens.verdicts import render_problems
from windrow.clusters.dumps import clean
from windrow.clusters.kinds import CLUSTER
from windrow.kube.errors import KubeError, NotFound
from windrow.kube.objects import Raw
from windrow.kube.refs import Kind, Ref, ref_of

MANAGER = "windrow-apply"


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", nargs="+", metavar="FILE", help="manifests; - reads standard input")
    options.add_wait(parser, "the clusters are ready")
    options.add_manager(parser)


def _in_order(documents: list[Raw]) -> list[tuple[Kind, Raw]]:
    if strangers := complaints_about_kinds(documents):
        raise together(strangers)
    placed = [(kind, raw) for raw in documents if (kind := find_kind(raw)) is not None]
    return sorted(placed, key=lambda pair: place_of(pair[0]))


async def _ensure(manager: Reached, ref: Ref, raw: Raw) -> str:
    """Make the object as described; the word says what that took."""
    try:
        before = await manager.client.get(ref)
    except NotFound as error:
        if error.details.get("name") != ref.name:  # the kind, not the object, is unknown
            raise
        before = None
    # Whoever applied it before (kubectl, a GitOps tool) hands the fields named here over to us.
    after = await manager.client.apply(ref, raw, MANAGER, force=True)
    if before is None:
        return "created"
    return "unchanged" if _content(before) == _content(after) else "changed"


def _content(raw: Raw) -> Raw:
    """The object without the server's record of who wrote what when."""
    metadata = {
        key: value
        for key, value in raw["metadata"].items()
        if key not in ("managedFields", "resourceVersion")
    }
    return {**raw, "metadata": metadata, "status": None}


async def _is_sound(documents: list[Raw], manager: Reached, edge: Edge) -> bool:
    """Whether the manifest may be sent. Tells everything that is wrong with it in itself."""
    from windrow.assembly.check import check, look_up

    configs, judge_kind = await look_up(manager.client, documents)
    verdicts = await check(documents, configs, judge_kind=judge_kind)
    for one in verdicts:
        for text in plain(render_problems(one.problems, edge.width)):
            edge.note(text)
    if not any(one.errors for one in verdicts):
        return True
    edge.note("Nothing was changed.")
    return False


async def _send(placed: list[tuple[Kind, Raw]], manager: Reached, edge: Edge) -> None:
    changed = False
    for kind, raw in placed:
        ref = ref_of(kind, raw)
        try:
            took = await _ensure(manager, ref, raw)
        except KubeError as error:
            complaint = complaint_about(error)
            if not changed or complaint.code != exits.REFUSED:
                raise
            raise Complaint(
                f"{ref} was refused: {complaint.fact}",
                "What is listed above was done. Correct this one, then apply it all again.",
            ) from error
        changed = changed or took != "unchanged"
        edge.say(f"{ref} {took}")


def run(given: argparse.Namespace, edge: Edge) -> int:
    options.settle_wait(given)
    documents, notes = clean(read_documents(given.files, edge))
    placed = _in_order(documents)
    say_notes(notes, edge)

    async def work(manager: Reached) -> int:
        for kind, raw in placed:
            if kind.namespaced:
                namespace = given.namespace or raw["metadata"].get("namespace") or manager.namespace
                raw["metadata"]["namespace"] = namespace
        if not await _is_sound([raw for _, raw in placed], manager, edge):
            return exits.REFUSED
        await _send(placed, manager, edge)
        clusters = [ref_of(kind, raw) for kind, raw in placed if kind is CLUSTER]
        if given.wait and clusters:
            from windrow.cli import waiting

            return await waiting.wait_for_ready(manager, clusters, given.timeout, edge)
        for ref in clusters:
            edge.note(f"See how it goes: windrow status {ref.namespace}/{ref.name} --watch")
        return exits.OK

    return reach.with_manager(given, edge, work)
