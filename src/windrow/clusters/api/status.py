"""What the controller itself recorded in the status of a Cluster, read back.

The recorded fields (`initServer`, `initialized`, `guestServiceAccount`, `guestUID`, `harvesterUID`, `version`, `creating`,
`controlPlaneEndpoint`, `immutableConfig`, `volumes`, `appliedRevision`, those of `operations/`) are written by actions: `guestUID` by a second one should it not be known when the cluster starts, `harvesterUID` by whichever has the
first contact. `revisions` is recorded with `creating`, and pruned with what is derived. The rest of the status is derived anew by each reconcile (`status.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from windrow.clusters.api.endpoint import ControlPlaneEndpoint, read_recorded_endpoint
from windrow.clusters.api.guest_volumes import GuestVolumes, read_recorded_volumes
from windrow.clusters.api.immutable_config import ImmutableConfig, read_immutable_config
from windrow.clusters.api.operations.recorded import RecordedOperations, read_recorded_operations
from windrow.kubernetes.conditions import find_condition, is_true
from windrow.kubernetes.objects import nested, time_of


@dataclass(frozen=True, slots=True)
class GuestServiceAccount:
    """The ServiceAccount on Harvester for the guest cluster, and the credential that may delete it.

    `earlier_token` names the Machines that were made before it was created again, with a token that is void now.
    """

    namespace: str
    name: str
    credential: str
    harvester: str = ""  # identity of the Harvester it is on, "" where it may not be read
    earlier_token: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class Breaker:
    """A pool's breaker that has tripped: `released` is since when replacements are allowed again, else None."""

    released: datetime | None = None


@dataclass(frozen=True, slots=True)
class ReservedName:
    """The name of a Machine that is going to be created."""

    pool: str
    name: str


@dataclass(frozen=True, slots=True)
class RecordedStatus:
    init_server_name: str = ""
    init_server_uid: str = ""
    initialized: bool = False
    service_account: GuestServiceAccount | None = None
    version: str = ""
    preflight_passed: bool = False
    provisioned: bool = False
    initialized_since: datetime | None = None  # when the guest API server answered for the first time
    harvester_uid: str = ""  # identity of the Harvester that its machines are on, "" before the first contact
    guest_uid: str = ""  # of the guest's service default/kubernetes, "" where it was not seen
    breakers: Mapping[str, Breaker] = field(default_factory=dict)  # by pool, of those that have ever tripped
    creating: tuple[ReservedName, ...] = ()
    endpoint: ControlPlaneEndpoint | None = None
    immutable_config: ImmutableConfig | None = None  # what its servers share for good
    volumes: GuestVolumes | None = (
        None  # of the guest, as it said when it was to be deleted; None: it was not asked
    )
    # What configuration hashes of Machines stand for, by hash: the user's fields then, by path.
    revisions: Mapping[str, Mapping[str, Any]] = field(default_factory=dict, repr=False)
    canaries: tuple[str, ...] = ()  # Machines that were changed since there is a canary
    applied_revision: str = ""  # of which the objects of the guest are, "" until another one was applied
    operations: RecordedOperations = field(default_factory=RecordedOperations)
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @property
    def has_started(self) -> bool:
        """Whether the cluster has started once. While it is restored from S3 it counts as not initialized: its servers are gone."""
        return self.initialized or bool(self.version and self.operations.restore.phase)

    @property
    def has_lost_servers(self) -> bool:
        """Whether a restore has failed after the servers of before were deleted: a first server would begin an empty cluster."""
        return self.has_started and not self.initialized and self.operations.restore.phase == "Failed"


def read_recorded_status(status: Mapping[str, Any], deletion: str = "") -> RecordedStatus:
    """What is recorded in a Cluster's status; `deletion` is that of the Cluster (`describe_deletion`). A status pasted from Rancher reads as that of a new cluster."""
    account = status.get("guestServiceAccount")
    initialized = find_condition(status.get("conditions"), "Initialized")
    return RecordedStatus(
        init_server_name=nested(status, "initServer", "name", default=""),
        init_server_uid=nested(status, "initServer", "uid", default=""),
        initialized=status.get("initialized") is True,
        service_account=_read_account(account) if account else None,
        version=str(status.get("version") or ""),
        preflight_passed=is_true(status.get("conditions"), "PreflightPassed"),
        provisioned=is_true(status.get("conditions"), "Provisioned"),
        initialized_since=initialized.since if initialized else None,
        harvester_uid=str(status.get("harvesterUID") or ""),
        guest_uid=str(status.get("guestUID") or ""),
        breakers=_read_breakers(status),
        creating=tuple(
            ReservedName(str(one.get("pool")), str(one.get("name"))) for one in status.get("creating") or ()
        ),
        endpoint=read_recorded_endpoint(status),
        immutable_config=read_immutable_config(status),
        volumes=read_recorded_volumes(status, deletion),
        revisions=_read_revisions(status),
        canaries=tuple(str(name) for name in status.get("canaries") or ()),
        applied_revision=str(status.get("appliedRevision") or ""),
        operations=read_recorded_operations(status),
        raw=status,
    )


def _read_revisions(status: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    raw = status.get("revisions")
    found = raw.items() if isinstance(raw, Mapping) else ()
    return {str(digest): one for digest, one in found if isinstance(one, Mapping)}


def _read_account(account: Mapping[str, Any]) -> GuestServiceAccount:
    return GuestServiceAccount(
        account["namespace"],
        account["serviceAccount"],
        account["credential"],
        account.get("harvester", ""),
        tuple(account.get("earlierToken") or ()),
    )


def _read_breakers(status: Mapping[str, Any]) -> dict[str, Breaker]:
    pools = [pool for pool in status.get("pools") or () if pool.get("breaker")]
    return {str(pool.get("name")): Breaker(time_of(pool, "breaker", "released")) for pool in pools}
