"""Say what is wrong with a manifest, all at once; change nothing.

The manifest is read as the cluster manager reads it. Then Harvester is asked whether its machines could be made:
image, networks, storage class, key pair, names. The credential comes from the management API, where one is known,
or from --harvester. With neither, only the manifest is judged. Pools of another
driver's kind are named, since Harvester cannot judge them; where the management API is known, their credential is
looked for. Exit code 3 means that something is wrong.

Examples:
  windrow check cluster.yaml
  windrow check cluster.yaml --harvester harvester.yaml
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from windrow.cli import exits, options, reach
from windrow.cli.complaints import Complaint, together
from windrow.cli.data import render_data
from windrow.cli.edge import Edge
from windrow.cli.manifests import complaints_about_kinds, find_kind, read_documents, say_notes
from windrow.cli.screens.paint import say_lines
from windrow.cli.screens.verdicts import render_verdict
from windrow.clusters.dumps import clean
from windrow.kube.objects import Raw

if TYPE_CHECKING:
    from windrow.assembly.check import Verdict


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", nargs="+", metavar="FILE", help="manifests; - reads standard input")
    parser.add_argument("--harvester", metavar="FILE", help="kubeconfig of the Harvester to ask")
    options.add_output(parser)
    options.add_manager(parser)


def run(given: argparse.Namespace, edge: Edge) -> int:
    import asyncio

    documents, notes = clean(read_documents(given.files, edge))
    say_notes(notes, edge)
    strangers = complaints_about_kinds(documents)
    documents = [raw for raw in documents if find_kind(raw) is not None]
    verdicts = asyncio.run(_check(documents, given, edge))
    if not verdicts and not strangers:
        raise Complaint("There is no Cluster in the manifest.", "Name the file that holds it.", exits.REFUSED)
    if given.output:
        edge.say(render_data(_all_data(verdicts, strangers), given.output))
    for one in () if given.output else verdicts:
        say_lines(edge, render_verdict(_called(one), one.problems, one.unasked, edge.width, one.strange))
    if strangers:
        raise together(strangers)
    return exits.REFUSED if any(one.errors for one in verdicts) else exits.OK


def _called(verdict: Verdict) -> str:
    place = f"{verdict.namespace}/{verdict.name}" if verdict.namespace else verdict.name
    return place if verdict.kind == "Cluster" else f"{verdict.kind} {place}"


async def _check(documents: list[Raw], given: argparse.Namespace, edge: Edge) -> list[Verdict]:
    """Ask as much as can be asked with what was given."""
    from windrow.assembly import check

    try:
        manager = reach.read_access(reach.find_kubeconfig(given, edge))
    except Complaint:  # no management API is known: the manifest can still be judged
        manager = None
    harvester = reach.read_kubeconfig(edge.cwd / given.harvester) if given.harvester else ""
    return await check.run(documents, manager, harvester)


def _all_data(verdicts: list[Verdict], strangers: list[Complaint]) -> dict[str, object]:
    return {
        "clusters": [_data(one) for one in verdicts if one.kind == "Cluster"],
        "harvesterConfigs": [_data(one) for one in verdicts if one.kind != "Cluster"],
        "unknown": [{"fact": one.fact, "cure": one.cure} for one in strangers],
    }


def _data(verdict: Verdict) -> dict[str, object]:
    problems = [
        {"severity": one.severity, "field": one.field, "fact": one.fact, "cure": one.cure}
        for one in verdict.problems
    ]
    return {
        "namespace": verdict.namespace,
        "name": verdict.name,
        "ok": not verdict.errors,
        "problems": problems,
        "harvesterAsked": verdict.asked,
        "notJudged": list(verdict.strange),
    }
