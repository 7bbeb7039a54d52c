import pytest

from windrow.apiserver.request.info import parse_request_info
from windrow.kubernetes.resources import SECRET


@pytest.mark.parametrize(
    "name", ["../../kube-system/secrets/x", "a?watch=1", "a#b", "a b", "50%", "system:node"]
)
def test_a_name_is_one_segment_of_its_path(name: str) -> None:
    path = SECRET.ref(name, "default").path

    assert path.count("/") == 6
    assert "?" not in path
    assert parse_request_info(path).name == name
