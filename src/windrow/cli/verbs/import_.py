"""Print a manifest without the bookkeeping of the Rancher that it was taken from.

What Rancher (or any Kubernetes) wrote for itself is left out: uid, resource version, managed fields, status,
finalizers of Rancher's controllers, owner references to objects that are not here. Everything left out is named
on standard error; the rest goes to standard output, unchanged.

Examples:
  windrow import cluster.yaml | kubectl apply -f -
  kubectl get clusters.provisioning.cattle.io prod -o yaml | windrow import -
"""

from __future__ import annotations

import argparse

from windrow.cli import exits, options
from windrow.cli.data import render_data
from windrow.cli.edge import Edge
from windrow.cli.manifests import read_documents, say_notes
from windrow.clusters.dumps import clean


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", nargs="+", metavar="FILE", help="manifests; - reads standard input")
    options.add_output(parser)


def run(given: argparse.Namespace, edge: Edge) -> int:
    from windrow.formats.yaml import dump_all

    documents, notes = clean(read_documents(given.files, edge))
    say_notes(notes, edge)
    if given.output == "json":
        edge.say(render_data({"apiVersion": "v1", "kind": "List", "items": documents}, "json"))
    else:
        edge.say(dump_all(documents).rstrip("\n"))
    return exits.OK
