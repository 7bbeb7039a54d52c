import pytest

from windrow.kubernetes.kubeconfig import BadKubeconfig, ClientConfig, render_kubeconfig
from windrow.plugin.credentials import find_client_config

OURS = render_kubeconfig(ClientConfig("https://ours", token="t"), "ours")
FILE = render_kubeconfig(ClientConfig("https://file", token_file="/token"), "file")

FILES = {
    "/kubeconfig": FILE,
    "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt": "CA",
    "/var/run/secrets/kubernetes.io/serviceaccount/token": "t",
}
POD = {"KUBERNETES_SERVICE_HOST": "10.53.0.1", "KUBERNETES_SERVICE_PORT": "443"}


def read_file(path: str) -> str:
    if path not in FILES:
        raise FileNotFoundError(f"{path} does not exist")
    return FILES[path]


@pytest.mark.parametrize(
    ("kubeconfig", "env", "server"),
    [
        (OURS, {}, "https://ours"),
        (OURS, {"WINDROW_DRIVER_KUBECONFIG": "/kubeconfig"}, "https://ours"),
        ("", {"WINDROW_DRIVER_KUBECONFIG": "/kubeconfig"}, "https://file"),
        ("", {"WINDROW_DRIVER_KUBECONFIG": "in-cluster", **POD}, "https://10.53.0.1:443"),
    ],
)
def test_the_machine_s_own_kubeconfig_is_used_or_the_one_that_is_named(
    kubeconfig: str, env: dict[str, str], server: str
):
    assert find_client_config(kubeconfig, env, read_file).server == server


@pytest.mark.parametrize(
    ("kubeconfig", "env", "said"),
    [
        ("", {}, "no kubeconfig"),
        (" \n", {"KUBECONFIG": "/kubeconfig", "HOME": "/", **POD}, "no kubeconfig"),
        ("", {"WINDROW_DRIVER_KUBECONFIG": "/other"}, "/other does not exist; correct the path"),
        ("", {"WINDROW_DRIVER_KUBECONFIG": "in-cluster"}, "not a pod"),
        (FILE, {}, "tokenFile '/token'"),
    ],
)
def test_nothing_else_is_guessed(kubeconfig: str, env: dict[str, str], said: str):
    with pytest.raises(BadKubeconfig, match=said):
        find_client_config(kubeconfig, env, read_file)
