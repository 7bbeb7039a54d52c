"""Create or change what a manifest describes. May be repeated.

Reads what Rancher users have, also as `kubectl get -o yaml` prints it (see `windrow import`). Objects go to the
management API in the order that they need each other; the cluster manager then does the work.

Examples:
  windrow apply cluster.yaml
  windrow apply cluster.yaml --wait --timeout 20m
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from windrow.cli import exits, options, reach
from windrow.cli.complaints import Complaint
from windrow.cli.edge import Edge
from windrow.cli.manifests import read_documents, say_notes
from windrow.cli.reach import Reached
from windrow.clusters.dumps import clean
from windrow.clusters.kinds import CLUSTER, HARVESTER_CONFIG
from windrow.kube.errors import NotFound
from windrow.kube.objects import Raw
from windrow.kube.refs import CONFIG_MAP, NAMESPACE, SECRET, Kind, Ref

MANAGER = "windrow-apply"

# In the order in which they need each other.
KINDS: tuple[Kind, ...] = (NAMESPACE, SECRET, CONFIG_MAP, HARVESTER_CONFIG, CLUSTER)


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", nargs="+", metavar="FILE", help="manifests; - reads standard input")
    parser.add_argument("--wait", action="store_true", help="return when the clusters are ready")
    options.add_timeout(parser)
    options.add_manager(parser)


def _kind_of(raw: Mapping[str, Any]) -> Kind:
    for kind in KINDS:
        if (kind.api_version, kind.kind) == (raw["apiVersion"], raw["kind"]):
            return kind
    known = ", ".join(kind.kind for kind in KINDS)
    raise Complaint(
        f"{raw['kind']} {raw['metadata']['name']} ({raw['apiVersion']}) is not of a kind that the manager knows: {known}.",
        "Take it out, or apply it with kubectl where it belongs.",
        exits.REFUSED,
    )


def _in_order(documents: list[Raw]) -> list[tuple[Kind, Raw]]:
    placed = [(_kind_of(raw), raw) for raw in documents]
    return sorted(placed, key=lambda pair: KINDS.index(pair[0]))


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


def run(given: argparse.Namespace, edge: Edge) -> int:
    documents, notes = clean(read_documents(given.files, edge))
    placed = _in_order(documents)
    say_notes(notes, edge)

    async def work(manager: Reached) -> int:
        clusters = []
        for kind, raw in placed:
            namespace = given.namespace or raw["metadata"].get("namespace") or manager.namespace
            ref = kind.ref(raw["metadata"]["name"], namespace)
            if kind.namespaced:
                raw["metadata"]["namespace"] = namespace
            edge.say(f"{ref} {await _ensure(manager, ref, raw)}")
            if kind is CLUSTER:
                clusters.append(ref)
        if given.wait and clusters:
            from windrow.cli import waiting

            return await waiting.wait_for_ready(manager, clusters, given.timeout, edge)
        for ref in clusters:
            edge.note(f"See how it goes: windrow status {ref.namespace}/{ref.name} --watch")
        return exits.OK

    return reach.with_manager(given, edge, work)
