"""Print the kubeconfig of a guest cluster, for kubectl and every other client, or merge it into kubectl's own.

It names the control plane endpoint of the cluster, or where it has none, one of its servers. Once that machine is
replaced, run the command again: it then names another one.

--merge adds the cluster as a context to the kubeconfig that kubectl reads, and run again brings it up to date. Other
entries stay as they are, and so does the current context. --remove takes it out, also once the cluster is gone.

Examples:
  windrow kubeconfig prod --file prod.yaml
  kubectl --kubeconfig prod.yaml get nodes
  windrow kubeconfig prod --merge && kubectl --context prod get nodes
  windrow kubeconfig prod --remove
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from windrow.app.describe.sentences import format_wait
from windrow.app.describe.views import read_cluster
from windrow.cli import connect, exit_codes, options
from windrow.cli.connect import Connection
from windrow.cli.context import CliContext
from windrow.cli.errors import CliError
from windrow.cli.paths import write_secret_answer
from windrow.clusters.api.names import KUBECONFIG_KEY, kubeconfig_name
from windrow.core.text import decode_base64
from windrow.kubernetes.objects import Raw, nested, uid_of
from windrow.kubernetes.resources import SECRET

if TYPE_CHECKING:
    from windrow.cli.kubeconfig_merge import Merged


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="CLUSTER", help="NAME or NAMESPACE/NAME")
    parser.add_argument(
        "--file", metavar="FILE", help="write it to this file, mode 0600, instead of printing it"
    )
    parser.add_argument(
        "--merge",
        action="store_true",
        help="add it to the kubeconfig that kubectl reads ($KUBECONFIG, else ~/.kube/config), or to --file",
    )
    parser.add_argument("--remove", action="store_true", help="remove what --merge has added")
    parser.add_argument("--context", metavar="NAME", help="name of the context (default: the cluster's)")
    parser.add_argument("--set-current", action="store_true", help="make it the current context")
    options.add_connection(parser)


def run(args: argparse.Namespace, context: CliContext) -> int:
    _refuse_unused(args)
    if args.remove:
        return _remove(args, context)
    return connect.run_connected(args, context, lambda manager: _print(args, context, manager))


def _refuse_unused(args: argparse.Namespace) -> None:
    if args.merge and args.remove:
        raise CliError("--merge and --remove exclude each other.", "Remove one of them.", exit_codes.USAGE)
    if args.set_current and not args.merge:
        raise CliError("--set-current has no effect without --merge.", "Add --merge.", exit_codes.USAGE)
    if args.context is not None and not (args.merge or args.remove):
        raise CliError("--context has no effect without --merge.", "Add --merge.", exit_codes.USAGE)


async def _print(args: argparse.Namespace, context: CliContext, manager: Connection) -> int:
    cluster = await connect.get_cluster(manager, args.name, args.namespace or "")
    metadata = cluster["metadata"]
    name = nested(cluster, "status", "clientSecretName", default=kubeconfig_name(metadata["name"]))
    secret = await manager.client.find(SECRET.ref(name, metadata["namespace"]))
    text = _content(secret)
    if not text:
        raise _not_ready_error(cluster, context)
    _require_plain(text, f"{metadata['namespace']}/{name}")
    if args.merge:
        _merge(args, context, cluster, text)
    elif args.file:
        write_secret_answer(context.cwd / args.file, text)
        context.print_note(f"Written. Try: kubectl --kubeconfig {args.file} get nodes")
    else:
        context.print(text.rstrip("\n"))
    if args.merge or args.file:
        _warn_of_one_server(cluster, context)
    return exit_codes.OK


def _require_plain(text: str, secret: str) -> None:
    from windrow.cli.kubeconfig_merge import check_guest_kubeconfig
    from windrow.kubernetes.kubeconfig import BadKubeconfig

    try:
        check_guest_kubeconfig(text)
    except BadKubeconfig as bad:
        raise CliError(
            f"The kubeconfig in Secret {secret} is not as the manager writes it: {bad.message}.",
            "See who has changed it, and do not use it. Once the Secret is deleted, the manager writes its own.",
            exit_codes.REFUSED,
        ) from bad


def _warn_of_one_server(cluster: Raw, context: CliContext) -> None:
    mode = nested(cluster, "status", "endpoint", "mode", default="")
    if mode == "firstServer" and (server := nested(cluster, "status", "endpoint", "api", default="")):
        context.print_note(f"It names one server, {server}. Write it again once that machine is replaced.")


def _merge(args: argparse.Namespace, context: CliContext, cluster: Raw, guest: str) -> None:
    from windrow.cli.kubeconfig_merge import Origin, merge_kubeconfig

    origin = Origin(connect.full_name(cluster), uid_of(cluster))
    name = args.context or cluster["metadata"]["name"]
    path, shown = _target(args, context)
    _change(
        path, shown, lambda text: merge_kubeconfig(text, guest, name, origin, set_current=args.set_current)
    )
    context.print(f"Context {name} of {origin.cluster} is in {shown}")
    context.print_note(f"Try: kubectl --context {name} get nodes")


def _remove(args: argparse.Namespace, context: CliContext) -> int:
    from windrow.cli.kubeconfig_merge import remove_from_kubeconfig

    path, shown = _target(args, context)
    named = f"{args.namespace}/{args.name}" if args.namespace and "/" not in args.name else args.name
    removed = _change(path, shown, lambda text: remove_from_kubeconfig(text, named, args.context or ""))
    if not removed.contexts:
        raise CliError(
            f"{shown} has no context of Cluster {named} that windrow kubeconfig --merge has added.",
            f"See its contexts: kubectl config get-contexts --kubeconfig {shown}",
            exit_codes.NOT_FOUND,
        )
    for name in removed.contexts:
        context.print(f"Context {name} removed from {shown}")
    return exit_codes.OK


def _target(args: argparse.Namespace, context: CliContext) -> tuple[Path, str]:
    from windrow.cli.kubeconfig_file import find_kubeconfig_file

    if args.file:
        return context.cwd / args.file, args.file
    path = find_kubeconfig_file(context)
    return path, str(path)


def _change(path: Path, shown: str, change: Callable[[str], Merged]) -> Merged:
    from windrow.cli.kubeconfig_file import change_kubeconfig
    from windrow.kubernetes.kubeconfig import BadKubeconfig

    try:
        return change_kubeconfig(path, shown, change)
    except BadKubeconfig as bad:
        raise CliError(
            f"Nothing was changed in {shown}: {bad.message}.", f"{bad.hint}.", exit_codes.REFUSED
        ) from bad


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
