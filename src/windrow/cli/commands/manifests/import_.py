"""Print a manifest without the fields that a Rancher server set.

Removed are uid, resourceVersion, managedFields, status, finalizers of Rancher's controllers, and owner references to
objects that are not in the manifest. A Secret that a Cluster of another namespace names gets annotation
windrow.io/allowed-namespaces, without which the Cluster may not use it; for a Secret that is not in the manifest, the
command that sets it is printed. Each change is listed on standard error; the rest goes to standard output unchanged.

Examples:
  windrow import -f cluster.yaml | kubectl apply -f -
  kubectl get clusters.provisioning.cattle.io prod -o yaml | windrow import -f -
"""

from __future__ import annotations

import argparse

from windrow.cli import exit_codes, options
from windrow.cli.context import CliContext
from windrow.cli.manifests import print_notes, read_documents
from windrow.cli.output.data import list_of, render_data, render_documents
from windrow.clusters.api.rancher_import import grant_references, strip_server_fields


def arguments(parser: argparse.ArgumentParser) -> None:
    options.add_filenames(parser, "a manifest")
    options.add_output(parser)


def run(args: argparse.Namespace, context: CliContext) -> int:
    documents, notes = strip_server_fields(read_documents(args.filename, context))
    print_notes([*notes, *grant_references(documents)], context)
    if args.output == "json":
        context.print(render_data(list_of(documents), "json"))
    else:
        context.print(render_documents(documents))
    return exit_codes.OK
