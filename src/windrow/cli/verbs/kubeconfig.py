"""Print the kubeconfig of a cluster, for kubectl and its kin.

Examples:
  windrow kubeconfig prod --file prod.yaml
  kubectl --kubeconfig prod.yaml get nodes
"""

from __future__ import annotations

import argparse
import base64

from windrow.cli import exits, options, reach
from windrow.cli.complaints import Complaint
from windrow.cli.edge import Edge
from windrow.cli.picture import read_cluster
from windrow.cli.reach import Reached
from windrow.cli.screens.tree import say_wait
from windrow.clusters.names import KUBECONFIG_KEY, kubeconfig_name
from windrow.kube.objects import Raw, dig
from windrow.kube.refs import SECRET


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="CLUSTER", help="NAME or NAMESPACE/NAME")
    parser.add_argument(
        "-f", "--file", metavar="FILE", help="write it there, for your eyes only, instead of printing it"
    )
    options.add_manager(parser)


def run(given: argparse.Namespace, edge: Edge) -> int:
    return reach.with_manager(given, edge, lambda manager: _print(given, edge, manager))


async def _print(given: argparse.Namespace, edge: Edge, manager: Reached) -> int:
    cluster = await reach.get_cluster(manager, given.name, given.namespace or "")
    metadata = cluster["metadata"]
    name = dig(cluster, "status", "clientSecretName", default=kubeconfig_name(metadata["name"]))
    secret = await manager.client.find(SECRET.ref(name, metadata["namespace"]))
    text = _content(secret)
    if not text:
        raise _not_yet(cluster, edge)
    if given.file:
        path = edge.cwd / given.file
        path.touch(mode=0o600)
        path.write_text(text)
        edge.note(f"Written. Try: kubectl --kubeconfig {given.file} get nodes")
    else:
        edge.say(text.rstrip("\n"))
    return exits.OK


def _content(secret: Raw | None) -> str:
    encoded = dig(secret, "data", KUBECONFIG_KEY, default="") if secret else ""
    return base64.b64decode(encoded).decode()


def _not_yet(cluster: Raw, edge: Edge) -> Complaint:
    view = read_cluster(cluster, ())
    why = f" It {say_wait(view.wait, edge.now())}." if view.wait else ""
    return Complaint(
        f"{reach.named(cluster)} has no kubeconfig yet.{why}",
        f"Try again when it is ready: windrow status {reach.named(cluster)} --watch",
        exits.NOT_FOUND,
    )
