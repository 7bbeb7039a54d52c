"""Print a Harvester credential for the cloud provider and the CSI driver of a cluster made by hand, as Harvester's scripts
generate_addon.sh and generate_addon_csi.sh do: a kubeconfig, then user data that writes it on a machine.

On Harvester it creates a ServiceAccount with rights in its namespace and a token; what is there stays, so the command may be
repeated. --rotate prints a new token beside the earlier one, which --revoke-earlier ends once the new one is delivered.

Examples:
  windrow addon demo default --k3s --harvester harvester.yaml
  windrow addon demo default --rotate --file demo-addon.txt
  windrow addon demo-csi default --csi-driver-only --file demo-csi.txt
  windrow addon demo default --delete
"""

from __future__ import annotations

import argparse
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from windrow.cli import connect, exit_codes, options
from windrow.cli.connect import Connection
from windrow.cli.context import CliContext
from windrow.cli.errors import CliError, combine, to_cli_error
from windrow.cli.paths import write_secret_answer
from windrow.core.formats.duration import human_duration
from windrow.kubernetes.objects import is_dns_label, is_dns_subdomain

if TYPE_CHECKING:
    from windrow.app.addon.account import AddonAccount
    from windrow.app.addon.plan import Action
    from windrow.app.addon.run import AccountRow, Granted

Work = Callable[[argparse.Namespace, CliContext, Connection], Awaitable[int]]
TARGETS = ("rke1", "rke2", "k3s")


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "name",
        nargs="?",
        metavar="SERVICEACCOUNT",
        help="such as the name of the cluster; created where absent",
    )
    parser.add_argument(
        "namespace", nargs="?", metavar="NAMESPACE", help="namespace of the cluster's VMs on Harvester"
    )
    parser.add_argument(
        "target",
        nargs="?",
        type=_target,
        default=None,
        metavar="TARGET",
        help="rke1, rke2 or k3s, as the script takes it",
    )
    targets = parser.add_mutually_exclusive_group()
    for one in TARGETS:
        targets.add_argument(
            f"--{one}",
            dest="flag",
            action="store_const",
            const=one,
            default="",
            help=f"the same as TARGET {one}",
        )
    acts = parser.add_mutually_exclusive_group()
    acts.add_argument(
        "--rotate", action="store_true", help="create another token and print it; the earlier one stays"
    )
    acts.add_argument("--revoke-earlier", action="store_true", help="delete all tokens but the newest")
    acts.add_argument("--delete", action="store_true", help="delete the account, its rights and tokens")
    acts.add_argument("--list", action="store_true", help="list the accounts that this command created")
    parser.add_argument("-y", "--yes", action="store_true", help="with --delete: do not ask for confirmation")
    parser.add_argument(
        "--server",
        type=_server,
        default=None,
        metavar="URL",
        help="Harvester as guests reach it (default: its VIP)",
    )
    parser.add_argument(
        "--mode",
        type=_mode,
        default="0600",
        metavar="MODE",
        help="mode of the files on machines (default: 0600)",
    )
    rights = parser.add_mutually_exclusive_group()
    rights.add_argument(
        "--csi-driver-only",
        action="store_true",
        help="give what Windrow's CSI driver needs and no more: no cloud provider, nor the Go driver, can use it",
    )
    rights.add_argument(
        "--cluster-wide",
        action="store_true",
        help="give the CSI driver's rights in every namespace, as Harvester's script does; shared (RWX) volumes need it",
    )
    parser.add_argument(
        "--adopt", action="store_true", help="take over the account that a script of Harvester created"
    )
    parser.add_argument(
        "--file", metavar="FILE", help="write it to this file, mode 0600, instead of printing it"
    )
    parser.add_argument(
        "--harvester",
        metavar="FILE",
        help="kubeconfig of Harvester (default: $KUBECONFIG, else ~/.kube/config)",
    )
    options.add_output(parser)


def _target(text: str) -> str:
    if text.lower() not in TARGETS:
        raise argparse.ArgumentTypeError(f"{text!r} is none of {', '.join(TARGETS)}")
    return text.lower()


def _server(text: str) -> str:
    try:
        url = urlsplit(text)
        good = url.scheme == "https" and bool(url.hostname) and url.port != 0 and "@" not in url.netloc
        good = good and not {"?", "#"} & set(text)
    except ValueError:
        good = False
    if not good:
        raise argparse.ArgumentTypeError(f"{text!r} is not the URL of an API server; write https://HOST:PORT")
    return text.rstrip("/")


def _mode(text: str) -> str:
    if not (len(text) in (3, 4) and set(text) <= set("01234567")):
        raise argparse.ArgumentTypeError(f"{text!r} is no mode of a file, such as 0600")
    return text.rjust(4, "0")


def run(args: argparse.Namespace, context: CliContext) -> int:
    from windrow.app.addon.plan import AddonRefused

    if args.list:
        return _connected(args, context, _list)
    _check_arguments(args, context)
    try:
        if args.delete:
            return _connected(args, context, _delete)
        if args.revoke_earlier:
            return _connected(args, context, _revoke_earlier)
        return _connected(args, context, _grant)
    except AddonRefused as error:
        raise combine([to_cli_error(one) for one in (error, *error.others)]) from error


def _connected(args: argparse.Namespace, context: CliContext, work: Work) -> int:
    kubeconfig = connect.find_harvester_kubeconfig(args, context)

    async def on_harvester(harvester: Connection) -> int:
        from windrow.app.addon.run import require_harvester

        await require_harvester(harvester.client, harvester.config.server)
        return await work(args, context, harvester)

    return connect.run_connected(args, context, on_harvester, kubeconfig)


def _check_arguments(args: argparse.Namespace, context: CliContext) -> None:
    """Raises CliError for what argparse cannot tell, and for a deletion without a confirmation."""
    if not args.name or not args.namespace:
        raise CliError(
            "A ServiceAccount and a namespace are wanted.",
            "Name both: windrow addon SERVICEACCOUNT NAMESPACE",
            exit_codes.USAGE,
        )
    if not is_dns_subdomain(args.name) or not is_dns_label(args.namespace):
        wrong = args.namespace if is_dns_subdomain(args.name) else args.name
        raise CliError(
            f"{wrong!r} cannot be the name of a {'Namespace' if wrong == args.namespace else 'ServiceAccount'}.",
            "Write lower-case letters, digits and dashes.",
            exit_codes.USAGE,
        )
    if args.flag and args.target and args.flag != args.target:
        raise CliError(
            f"Both {args.target} and --{args.flag} are given.", "Name one distribution.", exit_codes.USAGE
        )
    if args.output:
        raise CliError("-o is for --list.", "Leave it out, or add --list.", exit_codes.USAGE)
    if not args.delete or args.yes:
        return
    if not (context.terminal and context.stdin.isatty()):
        raise CliError(
            f"Deleting {args.namespace}/{args.name} ends the credential of its clusters, and there is no terminal to "
            "confirm that.",
            f"Confirm it: windrow addon {args.name} {args.namespace} --delete --yes",
            exit_codes.USAGE,
        )
    context.out.write(
        f"This deletes ServiceAccount {args.namespace}/{args.name}: clusters with its credential get no load balancers "
        "and volumes any more.\nType the name of the ServiceAccount to confirm: "
    )
    context.out.flush()
    if context.stdin.readline().strip() not in (args.name, f"{args.namespace}/{args.name}"):
        raise CliError(
            "Nothing was deleted.", "Type the name of the ServiceAccount, or use --yes.", exit_codes.FAILED
        )


def _account(args: argparse.Namespace) -> AddonAccount:
    from windrow.app.addon.account import AddonAccount

    return AddonAccount(args.name, args.namespace, args.cluster_wide, args.csi_driver_only)


async def _grant(args: argparse.Namespace, context: CliContext, harvester: Connection) -> int:
    from windrow.app.addon.output import render_output
    from windrow.app.addon.run import grant

    granted = await grant(
        harvester.client,
        _account(args),
        harvester.clock,
        harvester.config.cluster or "default",
        _printer(context),
        server=args.server or "",
        rotate=args.rotate,
        adopt=args.adopt,
    )
    text = render_output(granted.kubeconfig, args.flag or args.target, args.mode)
    if args.file:
        write_secret_answer(context.cwd / args.file, text)
        context.print_note(f"Written to {args.file}.")
    else:
        context.print(text.rstrip("\n"))
    _print_advice(args, context, granted)
    return exit_codes.OK


def _print_advice(args: argparse.Namespace, context: CliContext, granted: Granted) -> None:
    if granted.earlier:
        context.print_note(
            f"Earlier tokens are valid, too: {', '.join(map(str, granted.earlier))}. Once this one is on every machine: "
            f"windrow addon {args.name} {args.namespace} --revoke-earlier"
        )
    for name in granted.wider:
        context.print_note(
            f"ClusterRoleBinding {name} of Harvester's script gives this account rights in every namespace. Delete it: "
            f"kubectl delete clusterrolebinding {name}"
        )


async def _revoke_earlier(args: argparse.Namespace, context: CliContext, harvester: Connection) -> int:
    from windrow.app.addon.run import revoke_earlier

    await revoke_earlier(harvester.client, _account(args), _printer(context))
    return exit_codes.OK


async def _delete(args: argparse.Namespace, context: CliContext, harvester: Connection) -> int:
    from windrow.app.addon.run import delete

    await delete(harvester.client, _account(args), _printer(context))
    return exit_codes.OK


async def _list(args: argparse.Namespace, context: CliContext, harvester: Connection) -> int:
    from windrow.app.addon.run import list_accounts
    from windrow.cli.output.data import list_of, render_data
    from windrow.cli.output.tables import render_table

    rows = await list_accounts(harvester.client)
    if args.output:
        items = [
            {
                "apiVersion": "windrow.io/v1alpha1",
                "kind": "AddonAccount",
                "metadata": {"namespace": row.ref.namespace, "name": row.ref.name},
                "tokens": [ref.name for ref in row.tokens],
                "clusterWide": row.cluster_wide,
                "csiDriverOnly": row.csi_driver_only,
            }
            for row in rows
        ]
        context.print(render_data(list_of(items), args.output))
        return exit_codes.OK
    now = context.now()
    cells = [
        (
            row.ref.namespace,
            row.ref.name,
            human_duration(now - row.created) if row.created else "-",
            _describe_rights(row),
            ", ".join(ref.name for ref in row.tokens) or "-",
        )
        for row in rows
    ]
    heads = ("NAMESPACE", "SERVICEACCOUNT", "AGE", "CSI RIGHTS", "TOKENS")
    for line in render_table(heads, cells, context.width) if cells else ["No addon accounts."]:
        context.print(line)
    return exit_codes.OK


def _describe_rights(row: AccountRow) -> str:
    if row.csi_driver_only:
        return "its namespace, no others"
    return "every namespace" if row.cluster_wide else "its namespace"


def _printer(context: CliContext) -> Callable[[Action], None]:
    """Prints each action beside the answer: the first heading of a script is the first line of ours."""

    def print_action(action: Action) -> None:
        done = {"Create": "created", "Mark": "taken over", "Delete": "deleted"}[type(action).__name__]
        context.print_note(f"{action.ref} {done}: {action.because}")

    return print_action
