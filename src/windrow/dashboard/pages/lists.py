"""Activity, Credentials and Node drivers: one table each."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from windrow.app.describe.conditions import condition_health, condition_of, condition_since, list_conditions
from windrow.app.describe.events import list_events
from windrow.app.describe.tree import Health
from windrow.app.describe.views import parse_or_none
from windrow.clusters.api.kinds import CLUSTER
from windrow.clusters.api.references import parse_secret_reference, qualify_credential
from windrow.dashboard.pages.page import Page, PageContext
from windrow.dashboard.rendering import path_of
from windrow.drivers.api import LOCAL_URL, NODE_DRIVER, redact_url
from windrow.drivers.status import INACTIVE
from windrow.kubernetes.objects import Raw, name_of, namespace_of, nested
from windrow.kubernetes.resources import EVENT

MAX_EVENTS = 200
_MANY_DAYS = 30


@dataclass(frozen=True, slots=True)
class CredentialRow:
    """What a cluster authenticates with, and until when: its Secret for Harvester, and its own certificates."""

    namespace: str
    cluster: str
    secret: str
    status: str
    health: Health
    message: str
    since: datetime | None
    certificates_end: datetime | None
    ends_soon: bool
    secret_path: str  # of the page of its Harvester


async def activity(context: PageContext) -> Page:
    """The latest Events of a namespace, or of all."""
    namespace = context.namespace
    events = list_events(await context.api.list(EVENT, namespace))
    values = {"events": events[: -MAX_EVENTS - 1 : -1], "namespace": namespace, "total": len(events)}
    commands = (
        f"windrow events {context.scope}",
        f"kubectl get events {context.scope} --sort-by=.lastTimestamp",
    )
    return Page("activity.html", "Activity", values, "activity", "activity", namespace, commands)


async def credentials(context: PageContext) -> Page:
    """Of each cluster of a namespace, or of all, its credential and certificates, those that end first on top."""
    namespace = context.namespace
    rows = [_credential(raw, context.now) for raw in await context.api.list(CLUSTER, namespace)]
    far = datetime.max.replace(tzinfo=context.now.tzinfo)
    rows.sort(key=lambda row: (row.health == "good", row.certificates_end or far, row.namespace, row.cluster))
    values = {"rows": rows, "namespace": namespace}
    columns = "NAMESPACE:.metadata.namespace,NAME:.metadata.name,SECRET:.spec.cloudCredentialSecretName,END:.status.certificatesExpiryDate"
    command = f"kubectl get clusters.provisioning.cattle.io {context.scope} -o custom-columns={columns}"
    return Page("credentials.html", "Credentials", values, "credentials", "overview", namespace, (command,))


def _credential(raw: Raw, now: datetime) -> CredentialRow:
    secret = str(nested(raw, "spec", "cloudCredentialSecretName", default=""))
    ref = parse_secret_reference(qualify_credential(secret, namespace_of(raw)))
    valid = condition_of(raw, "CredentialValid")
    ends = parse_or_none(nested(raw, "status", "certificatesExpiryDate"))
    return CredentialRow(
        namespace_of(raw),
        name_of(raw),
        secret,
        valid.reason if valid is not None else "not tried yet",
        condition_health(valid) if valid is not None else "quiet",
        valid.message if valid is not None else "",
        condition_since(valid) if valid is not None else None,
        ends,
        ends is not None and (ends - now).days < _MANY_DAYS,
        path_of("harvesters", ref.namespace, ref.name) if ref is not None else "",
    )


async def node_drivers(context: PageContext) -> Page:
    """Every node driver with its conditions. Rancher's Inactive is left out: it says again what Active says."""
    drivers = await context.api.list(NODE_DRIVER)
    rows = [
        (
            name_of(raw),
            nested(raw, "spec", "active", default=False) is True,
            nested(raw, "spec", "url", default=LOCAL_URL) == LOCAL_URL,
            redact_url(str(nested(raw, "spec", "url", default=""))),
            [(one, condition_health(one)) for one in list_conditions(raw) if one.type != INACTIVE],
        )
        for raw in sorted(drivers, key=name_of)
    ]
    commands = ("windrow driver list", "kubectl get nodedrivers.management.cattle.io")
    return Page("node_drivers.html", "Node drivers", {"rows": rows}, "drivers", "drivers", "", commands)
