"""What Harvester's refusals are in the words of the driver: each error of a request becomes one of the port's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from windrow.csi.errors import Aborted, CsiError, FailedPrecondition, Internal, Unavailable
from windrow.csi.volumes import PermissionMissing, QuotaExceeded
from windrow.kubernetes import errors
from windrow.kubernetes.resources import ObjectRef

_QUOTA = "exceeded quota"


@contextmanager
def requesting(what: str) -> Iterator[None]:
    """A context whose KubeErrors are raised as errors of the driver; `what` is being done: `create PersistentVolumeClaim a/b`."""
    try:
        yield
    except errors.KubeError as error:
        raise translate(error, what) from error


@contextmanager
def not_found_as(ref: ObjectRef, error: CsiError) -> Iterator[None]:
    """A context in which an answer that `ref` does not exist is raised as `error`. Any other 404, as a proxy answers it, proves
    nothing and is raised as it is."""
    try:
        yield
    except errors.NotFound as found:
        if not errors.is_not_found(found, ref.name):
            raise
        raise error from None


def translate(error: errors.KubeError, what: str) -> CsiError:
    """The error of the driver, with Harvester's own words."""
    text = f"Harvester refuses to {what}: {error.message}"
    match error:
        case errors.Forbidden() | errors.AdmissionDenied() if _QUOTA in error.message:
            return QuotaExceeded(text, "raise the quota of the namespace on Harvester, or delete volumes")
        case errors.Forbidden() if errors.is_namespace_terminating(error):
            return FailedPrecondition(text, "its namespace is being deleted")
        case errors.Forbidden():
            return PermissionMissing(
                text,
                "give the driver's ServiceAccount on Harvester the missing right; "
                "its ClusterRoles are harvesterhci.io:csi-driver and harvesterhci.io:cloudprovider",
            )
        case errors.Unauthorized():
            return Unavailable(text, "renew the credential of the driver; it is reloaded without a restart")
        case errors.AdmissionDenied():
            return FailedPrecondition(text, "the message is of a webhook of Harvester or KubeVirt")
        case errors.Conflict() | errors.Expired():
            return Aborted(text, "repeat the same call")
        case errors.TooManyRequests() | errors.ServerError() | errors.Unreachable() | errors.OutcomeUnknown():
            return Unavailable(
                f"cannot {what}: {error.message}", "the call is repeated once Harvester answers"
            )
        case _:
            return Internal(text, "the message is Harvester's own")
