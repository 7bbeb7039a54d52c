"""Create a cluster from a few answers, or print its manifest.

At a terminal it asks for what is not given, with what Harvester has to choose from; elsewhere it needs the flags. Where there
is one choice only, it is taken. The manifest goes through the checks of `windrow apply`; nothing is written before they pass
and, at a terminal, the question at the end is answered. --dry-run prints the manifest, to keep and to edit.

Examples:
  windrow create cluster prod
  windrow create cluster prod --image default/noble --network default/vlan-50
  windrow create cluster lab --servers 1 --distribution k3s --dry-run > lab.yaml
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

from windrow.cli import connect, exit_codes, options
from windrow.cli.connect import Connection
from windrow.cli.context import CliContext
from windrow.cli.errors import CliError, combine
from windrow.kubernetes.objects import Raw

MAX_ANSWERS = 3  # tries at one question
MAX_CHOICES = 200


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("kind", choices=("cluster",), metavar="cluster", help="what to create")
    parser.add_argument("name", metavar="NAME", help="name of the Cluster")
    parser.add_argument("--credential", metavar="SECRET", help="credential of Harvester, as NAMESPACE:NAME")
    parser.add_argument("--image", metavar="NAME", help="image on Harvester, as NAMESPACE/NAME")
    parser.add_argument("--network", metavar="NAME", help="network on Harvester, as NAMESPACE/NAME")
    parser.add_argument("--ssh-user", metavar="USER", help="user of the image (default: by the image's name)")
    parser.add_argument(
        "--distribution", choices=("rke2", "k3s"), default="rke2", help="rke2 (default) or k3s"
    )
    parser.add_argument(
        "--kubernetes-version", metavar="VERSION", default="", help="release, such as v1.34.7+rke2r1"
    )
    parser.add_argument("--servers", type=_count, metavar="N", help="1, 3 or 5 (default: 3)")
    parser.add_argument(
        "--workers",
        type=_count_or_none,
        metavar="N",
        help="machines without etcd (default: 2; 0 with one server)",
    )
    parser.add_argument("--cpu", type=_count, default=4, metavar="N", help="CPUs of a machine (default: 4)")
    parser.add_argument("--memory", type=_count, default=8, metavar="GIB", help="its memory (default: 8)")
    parser.add_argument("--disk", type=_count, default=40, metavar="GIB", help="its disk (default: 40)")
    parser.add_argument(
        "--vm-namespace",
        metavar="NAME",
        default="default",
        help="namespace of its VMs on Harvester (default: default)",
    )
    parser.add_argument(
        "--endpoint-pool", metavar="NAME", default="", help="IPPool, for a load balancer as endpoint"
    )
    parser.add_argument("--dry-run", action="store_true", help="print the manifest, create nothing")
    parser.add_argument("-y", "--yes", action="store_true", help="do not ask for confirmation")
    options.add_output(parser)
    options.add_wait(parser, "the cluster is ready")
    options.add_connection(parser)


def _count_or_none(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or int(text) > 10_000:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 0 to 10000")
    return int(text)


def _count(text: str) -> int:
    if (number := _count_or_none(text)) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 to 10000")
    return number


def run(args: argparse.Namespace, context: CliContext) -> int:
    from windrow.cli.output.data import render_data, render_documents

    options.normalize_wait(args)
    if args.output and not args.dry_run:
        raise CliError("-o prints the manifest of --dry-run.", "Add --dry-run.", exit_codes.USAGE)
    documents = _render(args, context)
    if args.dry_run:
        _check_dry(documents)
        as_json = args.output == "json"
        context.print(render_data(_list(documents), "json") if as_json else render_documents(documents))
        return exit_codes.OK
    _confirm(documents, args, context)
    return connect.run_connected(args, context, lambda manager: _create(documents, args, context, manager))


# -- the answers ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Question:
    """One thing that is not given. `choices` are offered; others are taken where there are none."""

    flag: str
    about: str
    choices: Sequence[str]
    default: str = ""


def _render(args: argparse.Namespace, context: CliContext) -> list[Raw]:
    """The manifest, with what flags leave open from the management API, Harvester and the person at the terminal."""
    from windrow.app.harvester import new_cluster

    credential, image, network = args.credential, args.image, args.network
    if not credential:
        found = connect.run_connected(args, context, _list_credentials)
        (credential,) = _answer([_Question("--credential", "Credential of Harvester", found)], context)
    if not image or not network:
        images, networks = connect.run_connected(
            args, context, lambda manager: _list_choices(manager, credential, context)
        )
        asked = [
            *([] if image else [_Question("--image", "Image of its machines", images)]),
            *([] if network else [_Question("--network", "Network of its machines", networks)]),
        ]
        answers = dict(zip((one.flag for one in asked), _answer(asked, context), strict=True))
        image, network = image or answers["--image"], network or answers["--network"]
    user = args.ssh_user or new_cluster.guess_user(image)
    if not user:
        (user,) = _answer([_Question("--ssh-user", f"User that image {image} has", ())], context)
    servers = args.servers or _ask_servers(args, context)
    return new_cluster.render_manifest(
        new_cluster.NewCluster(
            args.name,
            _namespace(args, context),
            credential,
            image,
            network,
            user,
            args.distribution,
            args.kubernetes_version,
            servers,
            args.workers,
            args.cpu,
            args.memory,
            args.disk,
            args.vm_namespace,
            args.endpoint_pool,
        )
    )


def _namespace(args: argparse.Namespace, context: CliContext) -> str:
    """That of -n, else that of the kubeconfig, else Rancher's."""
    if args.namespace:
        return str(args.namespace)
    if connect.names_kubeconfig(args, context):
        config = connect.read_client_config(connect.find_kubeconfig(args, context))
        return config.namespace or "fleet-default"
    return "fleet-default"


async def _list_credentials(manager: Connection) -> list[str]:
    from windrow.app.harvester.choices import list_credentials

    return await list_credentials(manager.client, manager.namespace)


async def _list_choices(
    manager: Connection, credential: str, context: CliContext
) -> tuple[list[str], list[str]]:
    from windrow.app.harvester.choices import list_choices
    from windrow.app.harvester.console import open_credential

    async with open_credential(manager.client, credential, context.env) as (harvester, config):
        return await list_choices(harvester, config.namespace or "default")


def _ask_servers(args: argparse.Namespace, context: CliContext) -> int:
    from windrow.app.harvester.new_cluster import DEFAULT_SERVERS

    if args.dry_run or not _is_terminal(context):
        return DEFAULT_SERVERS
    question = _Question("--servers", "Servers (1 to try, 3 to survive the loss of one)", ("1", "3"), "3")
    return int(_ask(question, context))


def _answer(questions: Sequence[_Question], context: CliContext) -> list[str]:
    """An answer to each: the only choice, or the person's. Raises one CliError for all where there is no terminal to ask at."""
    open_ones = [one for one in questions if len(one.choices) != 1]
    for one in questions:
        if len(one.choices) == 1:
            context.print_note(f"{one.about}: {one.choices[0]}, the only one there is.")
    if open_ones and not _is_terminal(context):
        raise combine([_missing(one) for one in open_ones])
    return [one.choices[0] if len(one.choices) == 1 else _ask(one, context) for one in questions]


def _missing(one: _Question) -> CliError:
    from windrow.core.text import join_some

    there = f"; there are {join_some(list(one.choices), 5)}" if one.choices else ""
    return CliError(
        f"{one.about} is not given{there}.", f"Add {one.flag}, or ask at a terminal.", exit_codes.USAGE
    )


def _is_terminal(context: CliContext) -> bool:
    return context.terminal and context.stdin.isatty()


def _ask(question: _Question, context: CliContext) -> str:
    """The person's answer: a number of the list, or a name. Raises CliError at the end of the input."""
    choices = question.choices[:MAX_CHOICES]
    context.print(f"{question.about}:")
    for place, choice in enumerate(choices, 1):
        context.print(f"  {place:>3}  {choice}")
    default = question.default or (choices[0] if choices else "")
    for _ in range(MAX_ANSWERS):
        context.out.write(f"Number or name{f' [{default}]' if default else ''}: ")
        context.out.flush()
        line = context.stdin.readline()
        if not line:
            break
        answer = line.strip() or default
        if answer in choices or (answer and not choices):
            return answer
        if answer.isascii() and answer.isdigit() and 1 <= int(answer) <= len(choices):
            return choices[int(answer) - 1]
        context.print(f"{answer!r} is none of them." if answer else "An answer is needed.")
    raise CliError(
        f"Nothing was created: {question.about.lower()} is not known.",
        f"Name it with {question.flag}.",
        exit_codes.FAILED,
    )


# -- what becomes of the manifest ----------------------------------------------------------------------------------


def _list(documents: Sequence[Raw]) -> Raw:
    from windrow.cli.output.data import list_of

    return list_of(documents)


def _check_dry(documents: list[Raw]) -> None:
    """Raise CliError where the manifest by itself has an error; Harvester is not asked."""
    import asyncio

    from windrow.app import check

    results = asyncio.run(check.run(documents, None))
    errors = [
        CliError(f"{one.message}.", f"{one.hint}.", exit_codes.REFUSED)
        for result in results
        for one in result.problems
        if one.severity == "error"
    ]
    if errors:
        raise combine(errors)


def _confirm(documents: Sequence[Raw], args: argparse.Namespace, context: CliContext) -> None:
    if args.yes or not _is_terminal(context):
        return
    cluster = documents[-1]
    pools = ", ".join(
        f"{one['quantity']} {one['name']}" for one in cluster["spec"]["rkeConfig"]["machinePools"]
    )
    context.out.write(
        f"This creates Cluster {connect.full_name(cluster)} ({cluster['spec']['kubernetesVersion']}): {pools}.\nCreate it? [y/N]: "
    )
    context.out.flush()
    if context.stdin.readline().strip().lower() not in ("y", "yes"):
        raise CliError(
            "Nothing was created.", "Answer y, or keep the manifest with --dry-run.", exit_codes.FAILED
        )


async def _create(
    documents: list[Raw], args: argparse.Namespace, context: CliContext, manager: Connection
) -> int:
    from windrow.cli.commands.manifests.apply import passes_check, send_objects, sort_by_kind
    from windrow.clusters.api.kinds import CLUSTER
    from windrow.kubernetes.resources import ref_of

    ref = ref_of(CLUSTER, documents[-1])
    if await manager.client.find(ref) is not None:
        hint = f"Choose another name, or change it: windrow create cluster {args.name} --dry-run, then windrow apply."
        raise CliError(f"{ref} exists already.", hint, exit_codes.REFUSED)
    if not await passes_check(documents, manager, context):
        return exit_codes.REFUSED
    await send_objects(sort_by_kind(documents), manager, context)
    if args.wait:
        from windrow.cli import wait

        return await wait.wait_for_ready(manager, [ref], args.timeout, context)
    context.print_note(f"Follow it: windrow status {ref.namespace}/{ref.name} --watch")
    return exit_codes.OK
