"""Each error of a request becomes one of the driver's."""

from __future__ import annotations

import pytest

from windrow.csi import errors as ours
from windrow.csi.harvester.refusals import requesting, translate
from windrow.csi.volumes import PermissionMissing, QuotaExceeded
from windrow.kubernetes import errors

TERMINATING = {"causes": [{"reason": "NamespaceTerminating"}]}


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (errors.Forbidden("forbidden: exceeded quota: q, requested: 1"), QuotaExceeded),
        (errors.AdmissionDenied("denied: exceeded quota"), QuotaExceeded),
        (errors.Forbidden("cannot patch resource"), PermissionMissing),
        (errors.Forbidden("no", details=TERMINATING), ours.FailedPrecondition),
        (errors.Unauthorized("no"), ours.Unavailable),
        (errors.AdmissionDenied("already used by VM"), ours.FailedPrecondition),
        (errors.Conflict("changed"), ours.Aborted),
        (errors.TooManyRequests("slow"), ours.Unavailable),
        (errors.ServerError("boom"), ours.Unavailable),
        (errors.Unreachable("refused"), ours.Unavailable),
        (errors.OutcomeUnknown("reset"), ours.Unavailable),
        (errors.Invalid("wrong"), ours.Internal),
        (errors.NotFound("the server could not find the requested resource"), ours.Internal),
    ],
)
def test_an_error_of_harvester(error: errors.KubeError, kind: type[ours.CsiError]):
    found = translate(error, "create PersistentVolumeClaim default/a")

    assert type(found) is kind
    assert error.message in found.message
    assert "create PersistentVolumeClaim default/a" in found.message


def test_an_error_of_ours_passes():
    with pytest.raises(ours.Aborted), requesting("read"):
        raise ours.Aborted("a", "b")
