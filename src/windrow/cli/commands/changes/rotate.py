"""Rotate the certificates, the encryption keys or the server token of a cluster.

Services restart for it, servers first and one at a time. certificates: all, or those of the services that --service names, get
new keys. encryption-keys: Secrets are encrypted with a new key in etcd, after a snapshot. token: servers join with a new one,
and snapshots that were made before are restored with that of their time, which is kept.

Examples:
  windrow rotate certificates prod --wait
  windrow rotate certificates prod --service etcd --service api-server
  windrow rotate encryption-keys prod
  windrow rotate token prod --wait
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import Any

from windrow.cli import connect, exit_codes, options
from windrow.cli.commands.snapshot import raise_generation
from windrow.cli.connect import Connection
from windrow.cli.context import CliContext
from windrow.cli.errors import CliError
from windrow.clusters.api.kinds import CLUSTER
from windrow.clusters.api.operations.generations import next_generation
from windrow.clusters.api.operations.rotations import CERTIFICATE_SERVICES
from windrow.kubernetes.objects import Raw, nested
from windrow.kubernetes.resources import ObjectRef, ref_of


@dataclass(frozen=True, slots=True)
class _Rotation:
    """One kind: its field in `rkeConfig`, its words, and where in the status the generation that was carried out is."""

    key: str
    what: str
    about: str
    done: tuple[str, ...]


ROTATIONS = {
    "certificates": _Rotation(
        "rotateCertificates",
        "certificates",
        "make new keys and certificates for services",
        ("certificateRotationGeneration",),
    ),
    "encryption-keys": _Rotation(
        "rotateEncryptionKeys",
        "encryption keys",
        "encrypt Secrets in etcd with a new key",
        ("rotateEncryptionKeys", "generation"),
    ),
    "token": _Rotation(
        "rotateToken",
        "the server token",
        "give servers a new token to join with",
        ("rotateToken", "generation"),
    ),
}


_OVER = ("Done", "Failed")


def arguments(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, rotation in ROTATIONS.items():
        one = commands.add_parser(name, help=rotation.about)
        one.add_argument("name", metavar="CLUSTER", help="NAME or NAMESPACE/NAME")
        if name == "certificates":
            one.add_argument(
                "--service",
                action="append",
                default=[],
                choices=CERTIFICATE_SERVICES,
                metavar="SERVICE",
                help=f"of this service only; again for more: {', '.join(CERTIFICATE_SERVICES)}",
            )
        options.add_wait(one, "they are rotated")
        options.add_connection(one)
        options.add_verbose(one)


def run(args: argparse.Namespace, context: CliContext) -> int:
    options.normalize_wait(args)
    return connect.run_connected(args, context, lambda manager: _rotate(args, context, manager))


async def _rotate(args: argparse.Namespace, context: CliContext, manager: Connection) -> int:
    cluster, rotation = (
        await connect.get_cluster(manager, args.name, args.namespace or ""),
        ROTATIONS[args.command],
    )
    ref, generation = ref_of(CLUSTER, cluster), next_generation(cluster, rotation.key, rotation.done)
    services = {"services": args.service} if args.command == "certificates" and args.service else {}
    change = raise_generation(cluster, rotation.key, {"generation": generation, **services})
    await manager.client.json_patch(ref, change)
    context.print(f"{connect.full_name(cluster)}: rotation {generation} of {rotation.what} is asked for")
    if nested(cluster, "spec", "paused", default=False) is True:
        context.print_note(
            f"It is paused, so nothing begins before: windrow resume {connect.full_name(cluster)}"
        )
    return await _wait(manager, ref, rotation, generation, args, context) if args.wait else exit_codes.OK


def _find_done(cluster: Raw, rotation: _Rotation) -> int:
    done = nested(cluster, "status", *rotation.done, default=0)
    return done if isinstance(done, int) else 0


async def _wait(
    manager: Connection,
    ref: ObjectRef,
    rotation: _Rotation,
    generation: int,
    args: argparse.Namespace,
    context: CliContext,
) -> int:
    from windrow.cli import wait

    status: dict[str, Any] = {}

    async def look() -> bool:
        before = _find_phase(status, rotation)
        cluster = await manager.client.get(ref)
        status.clear()
        status.update(cluster.get("status") or {})
        if _find_done(cluster, rotation) < generation:
            return False
        if (phase := _find_phase(status, rotation)) != before:
            context.print_note(f"{ref}: {phase}")
        return phase in _OVER

    what = f"the rotation of {rotation.what} of {ref}"
    await wait.wait_until(look, manager, ref.namespace, args.timeout, what)
    if _find_phase(status, rotation) == "Failed":
        said = str(nested(status, f"{rotation.key}Run", "message", default=""))
        message, _, hint = said.partition("; ")
        raise CliError(f"{ref}: {rotation.what} failed: {message}.", hint, exit_codes.FAILED)
    context.print(f"{ref}: {rotation.what} rotated")
    return exit_codes.OK


def _find_phase(status: dict[str, Any], rotation: _Rotation) -> str:
    """Certificates have none: their generation is recorded at the end."""
    if rotation.key == "rotateCertificates":
        return "Done" if status else ""
    return str(status.get(f"{rotation.key}Phase") or "")
