"""Print the kubeconfig of a guest cluster, for kubectl and every other client.

It names the control plane endpoint of the cluster, or where it has none, one of its servers. Once that machine is
replaced, run the command again: it then names another one.

Examples:
  windrow kubeconfig prod --file prod.yaml
  kubectl --kubeconfig prod.yaml get nodes
"""

from __future__ import annotations

import argparse

from windrow.app.describe.sentences import format_wait
from windrow.app.describe.views import read_cluster
from windrow.cli import connect, exit_codes, options
from windrow.cli.connect import Connection
from windrow.cli.context import CliContext
from windrow.cli.errors import CliError
from windrow.cli.paths import write_secret_answer
from windrow.clusters.api.names import KUBECONFIG_KEY, kubeconfig_name
from windrow.core.text import decode_base64
from windrow.kubernetes.objects import Raw, nested
from windrow.kubernetes.resources import SECRET


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="CLUSTER", help="NAME or NAMESPACE/NAME")
    parser.add_argument(
        "--file", metavar="FILE", help="write it to this file, mode 0600, instead of printing it"
    )
    options.add_connection(parser)


def run(args: argparse.Namespace, context: CliContext) -> int:
    return connect.run_connected(args, context, lambda manager: _print(args, context, manager))


async def _print(args: argparse.Namespace, context: CliContext, manager: Connection) -> int:
    cluster = await connect.get_cluster(manager, args.name, args.namespace or "")
    metadata = cluster["metadata"]
    name = nested(cluster, "status", "clientSecretName", default=kubeconfig_name(metadata["name"]))
    secret = await manager.client.find(SECRET.ref(name, metadata["namespace"]))
    text = _content(secret)
    if not text:
        raise _not_ready_error(cluster, context)
    if args.file:
        write_secret_answer(context.cwd / args.file, text)
        context.print_note(f"Written. Try: kubectl --kubeconfig {args.file} get nodes")
        mode = nested(cluster, "status", "endpoint", "mode", default="")
        if mode == "firstServer" and (server := nested(cluster, "status", "endpoint", "api", default="")):
            context.print_note(
                f"It names one server, {server}. Write it again once that machine is replaced."
            )
    else:
        context.print(text.rstrip("\n"))
    return exit_codes.OK


def _content(secret: Raw | None) -> str:
    encoded = nested(secret, "data", KUBECONFIG_KEY, default="") if secret else ""
    return decode_base64(encoded)


def _not_ready_error(cluster: Raw, context: CliContext) -> CliError:
    view = read_cluster(cluster, ())
    why = f" It {format_wait(view.wait, context.now())}." if view.wait else ""
    return CliError(
        f"Cluster {connect.full_name(cluster)} has no kubeconfig yet.{why}",
        f"Try again when it is ready: windrow status {connect.full_name(cluster)} --watch",
        exit_codes.NOT_FOUND,
    )
