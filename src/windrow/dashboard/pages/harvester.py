"""Harvester: by credential what a Harvester has, and what of it is used. Read with that credential, for who may get its Secret."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime

from windrow.app.describe.conditions import condition_health, list_conditions
from windrow.app.describe.tree import Health
from windrow.app.harvester.inventory import Inventory, read_inventory
from windrow.app.harvester.reader import OpenHarvester
from windrow.client.client import Client
from windrow.clusters.api.kinds import CLUSTER
from windrow.clusters.api.references import parse_secret_reference, qualify_credential
from windrow.core.errors import UserError
from windrow.dashboard.pages.page import Page, PageContext
from windrow.kubernetes.errors import BadRequest, Forbidden
from windrow.kubernetes.objects import Raw, name_of, namespace_of, nested

# Of a credential with more, the first are named.
MAX_CLUSTERS = 20


@dataclass(frozen=True, slots=True)
class CredentialLine:
    """A credential that clusters use. `state` is the worst that the manager found with it."""

    namespace: str
    name: str
    clusters: tuple[tuple[str, str], ...]
    count: int
    state: str
    health: Health
    message: str


async def harvesters(context: PageContext) -> Page:
    """The credentials that the clusters of a namespace, or of all, use; or the one that a form names."""
    if wanted := context.query.get("credential", "").strip():
        ref = parse_secret_reference(wanted) if len(wanted) <= 600 else None
        if ref is None:
            raise BadRequest("wanted a Secret as NAMESPACE:NAME, such as fleet-default:hv", status=400)
        return await harvester(replace(context, names=(ref.namespace, ref.name)))
    namespace = context.namespace
    lines = list_credential_lines(await context.api.list(CLUSTER, namespace))
    commands = (f"kubectl get clusters.provisioning.cattle.io {context.scope} -o custom-columns=NAME:.metadata.name,SECRET:.spec.cloudCredentialSecretName",)  # fmt: skip
    values = {"lines": lines, "namespace": namespace}
    return Page("harvesters.html", "Harvester", values, "harvesters", "overview", namespace, commands)


def list_credential_lines(clusters: Iterable[Raw]) -> list[CredentialLine]:
    """By Secret, the clusters that use it."""
    users: dict[tuple[str, str], list[Raw]] = {}
    for raw in clusters:
        named = str(nested(raw, "spec", "cloudCredentialSecretName", default=""))
        ref = parse_secret_reference(qualify_credential(named, namespace_of(raw)))
        if ref is not None:
            users.setdefault((ref.namespace, ref.name), []).append(raw)
    return [_line(place, users[place]) for place in sorted(users)]


def _line(place: tuple[str, str], clusters: list[Raw]) -> CredentialLine:
    found = [one for raw in clusters for one in list_conditions(raw) if one.type == "CredentialValid"]
    worst = next((one for one in found if condition_health(one) != "good"), found[0] if found else None)
    named = sorted((namespace_of(raw), name_of(raw)) for raw in clusters)
    return CredentialLine(
        *place,
        tuple(named[:MAX_CLUSTERS]),
        len(named),
        worst.reason if worst is not None else "not tried yet",
        condition_health(worst) if worst is not None else "quiet",
        worst.message if worst is not None and condition_health(worst) != "good" else "",
    )


@dataclass(frozen=True, slots=True)
class Shown:
    """What was read of a Harvester, when, and by which address; or why it could not be."""

    inventory: Inventory | None = None
    server: str = ""
    read_at: datetime | None = None
    problem: str = ""
    hint: str = ""


async def harvester(context: PageContext) -> Page:
    """One Harvester, by namespace and name of its credential."""
    namespace, name = context.names
    reference = f"{namespace}:{name}"
    shown = await _show(context, reference)
    values = {"namespace": namespace, "name": name, "reference": reference, "shown": shown}
    nouns = ("hosts", "images", "networks", "pools")
    commands = tuple(f"windrow get {noun} --credential {shlex.quote(reference)} -o wide" for noun in nouns)
    # What stands on a Harvester is read when the page is loaded, and then no more.
    return Page("harvester.html", f"Harvester of {reference}", values, "harvesters", commands=commands)


async def _show(context: PageContext, reference: str) -> Shown:
    async def work(found: OpenHarvester) -> Shown:
        inventory = await read_inventory(Client(found.transport), found.config.namespace or "default")
        return Shown(inventory, found.config.server, context.now)

    try:
        return await context.harvesters.read(context.api, context.user, reference, work)
    except Forbidden as error:
        return Shown(problem=error.message, hint="Who may get this Secret sees its Harvester.")
    except UserError as error:
        return Shown(problem=error.message, hint=error.hint)
