from __future__ import annotations

import pytest

from windrow.kubernetes.errors import (
    Forbidden,
    KubeError,
    NotFound,
    is_not_found,
    is_unknown_kind,
    names_no_object,
)

MISSING = NotFound('clusters "prod" not found', status=404, details={"name": "prod"})
UNKNOWN_KIND = NotFound("the server could not find the requested resource", status=404)
PAGE = NotFound("404 page not found", status=404)
REFUSED = Forbidden("the server could not find the requested resource", status=403)


@pytest.mark.parametrize(
    ("error", "is_object", "is_kind", "is_unnamed"),
    [
        (MISSING, True, False, False),
        (UNKNOWN_KIND, False, True, True),
        (PAGE, False, False, True),
        (REFUSED, False, False, False),
    ],
)
def test_a_404_is_of_an_object_of_a_kind_or_of_no_api_server(
    error: KubeError, is_object: bool, is_kind: bool, is_unnamed: bool
):
    assert is_not_found(error, "prod") == is_object
    assert is_unknown_kind(error) == is_kind
    assert names_no_object(error) == is_unnamed
