import base64
import traceback

import pytest

from windrow.core.formats.yaml import dump, load
from windrow.kubernetes.kubeconfig import (
    BadKubeconfig,
    ClientConfig,
    ExecConfig,
    in_cluster_config,
    parse_kubeconfig,
    render_kubeconfig,
)

PEM = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
KEY = "-----BEGIN PRIVATE KEY-----\nMIIB\n-----END PRIVATE KEY-----\n"


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def config(cluster=None, user=None, **rest) -> str:
    return dump(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": {"server": "https://10.0.0.1:6443", **(cluster or {})}}],
            "users": [{"name": "u", "user": user if user is not None else {"token": "t"}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u", "namespace": "n"}}],
            "current-context": "x",
            **rest,
        }
    )


def test_the_current_context_is_taken():
    access = parse_kubeconfig(config({"certificate-authority-data": encoded(PEM)}))

    assert access == ClientConfig("https://10.0.0.1:6443", ca=PEM, token="t", namespace="n", user="u")


def test_a_path_after_the_host_is_kept_because_rancher_proxies_clusters_under_one():
    access = parse_kubeconfig(config({"server": "https://rancher.example/k8s/clusters/local/"}))

    assert access.server == "https://rancher.example/k8s/clusters/local"


def test_the_only_context_is_taken_when_none_is_current():
    assert parse_kubeconfig(config(**{"current-context": ""})).token == "t"


def test_certificates_by_path_are_read_by_the_function_given():
    text = config(user={"client-certificate": "c.pem", "client-key": "k.pem"})

    access = parse_kubeconfig(text, read_file={"c.pem": PEM, "k.pem": KEY}.__getitem__)

    assert (access.certificate, access.key) == (PEM, KEY)


@pytest.mark.parametrize(
    "access",
    [
        ClientConfig("https://h:1", ca=PEM, token="t", namespace="n", user="guest"),
        ClientConfig(
            "https://h:1/k8s", certificate=PEM, key=KEY, user="guest", proxy_url="http://127.0.0.1:9"
        ),
        ClientConfig("https://h", insecure=True, tls_server_name="kubernetes", token_file="/t", user="guest"),
        ClientConfig(
            "https://h", exec=ExecConfig("get", ("a",), (("E", "1"),), install_hint="brew"), user="guest"
        ),
    ],
)
def test_what_is_rendered_is_read_back(access):
    assert parse_kubeconfig(render_kubeconfig(access, "guest"), read_file=str) == access


def test_secrets_do_not_show_in_the_representation():
    shown = repr(ClientConfig("https://h", token="s3cret", key="s3cret", certificate="s3cret"))

    assert "s3cret" not in shown


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("", "empty", "clusters"),
        ("{", "not YAML", "whole file"),
        ("hello", "no list of clusters", "clusters"),
        (config({"server": "10.0.0.1"}), "'10.0.0.1'", "https://HOST"),
        (config({"server": "https://h:port"}), "https://h:port", "https://HOST"),
        (config({"server": "https://ada:pw@h"}), "'c' is written with a user name", "https://HOST"),
        (config({"certificate-authority-data": "%%"}), "not base64", "copy"),
        (config({"certificate-authority-data": encoded("x")}), "no PEM", "BEGIN"),
        (config({"certificate-authority": "/ca.pem"}), "/ca.pem", "--flatten"),
        (config({"proxy-url": "socks5://h:1"}), "socks5", "http://"),
        (config(user={"client-certificate-data": encoded(PEM)}), "no client-key", "client-key-data"),
        (config(user={"username": "a", "password": "b"}), "password", "token"),
        (config(user={"token": 12}), "int", "quote"),
        (config(user={"exec": {"command": "x", "apiVersion": "v1alpha1"}}), "v1alpha1", "v1beta1"),
        (config(user={"tokenFile": "/etc/shadow"}), "/etc/shadow", "token"),
        (
            config(user={"exec": {"command": "rm", "apiVersion": "client.authentication.k8s.io/v1"}}),
            "exec 'rm'",
            "client certificate",
        ),
        (config(**{"current-context": "y"}), "no context named 'y'", "name"),
        (config(**{"current-context": "", "contexts": []}), "no contexts", "context"),
    ],
)
def test_an_unusable_kubeconfig_is_refused_with_message_and_hint(text, message, hint):
    with pytest.raises(BadKubeconfig) as caught:
        parse_kubeconfig(text)

    assert message in caught.value.message
    assert hint in caught.value.hint


def test_the_rendered_file_has_kubectls_fields():
    raw = load(
        render_kubeconfig(ClientConfig("https://h", ca=PEM, proxy_url="http://p:1", token="t"), "demo")
    )

    assert raw["current-context"] == "demo"
    assert set(raw["clusters"][0]["cluster"]) == {"server", "certificate-authority-data", "proxy-url"}
    assert raw["users"][0]["user"] == {"token": "t"}


def test_in_a_pod_the_service_account_is_used():
    files = {f"/var/run/secrets/kubernetes.io/serviceaccount/{name}": name for name in ("ca.crt", "token")}
    env = {"KUBERNETES_SERVICE_HOST": "10.43.0.1", "KUBERNETES_SERVICE_PORT": "443"}

    access = in_cluster_config(env, files.__getitem__)

    assert access.server == "https://10.43.0.1:443"
    assert access.token_file.endswith("/token")


def test_outside_a_pod_the_hint_is_a_kubeconfig():
    with pytest.raises(BadKubeconfig, match="not a pod"):
        in_cluster_config({}, str)


SECRET = "kubeconfig-user-abc0123456789-SECRET"
LONG = "SECRET" * 50
GOOD = {"server": "https://10.0.0.1:6443"}


@pytest.mark.parametrize(
    "text",
    [
        config().replace("token: t", f"token: !{SECRET} x"),
        config().replace("token: t", f"token: *{SECRET}"),
        config().replace("token: t", f"token: {SECRET}: x"),
        config().replace("token: t", f"token: '{SECRET}"),
        config().replace("token: t", f"token: %{SECRET}\n  @{SECRET}"),
        config(users=[{"name": {"token": SECRET}}]),
        config(users=[{"name": LONG}]),
        config(users={"token": SECRET}),
        config(**{"current-context": {"token": SECRET}}),
        config({"server": f"https://me:{SECRET}[@h"}),
        config({"server": LONG}),
        config(user={"client-certificate": f"{PEM}{SECRET}", "client-key": "k"}),
        config(user={"client-certificate": LONG}),
        config(user={"client-certificate": f"{SECRET}\0"}),
        config(user={"client-certificate-data": SECRET, "client-key-data": SECRET}),
        config(
            user={"exec": {"command": "x", "apiVersion": "client.authentication.k8s.io/v1", "env": [SECRET]}}
        ),
        config(user={"exec": {"command": "x", "apiVersion": "client.authentication.k8s.io/v1", "args": 1}}),
        config(user={"token": [SECRET]}),
        SECRET,
        f"- {SECRET}",
    ],
)
def test_a_secret_in_a_wrong_field_is_not_in_the_error(text):
    def read(path):
        raise OSError(36, "File name too long", path)

    with pytest.raises(BadKubeconfig) as caught:
        parse_kubeconfig(text, read_file=read)

    assert "SECRET" not in str(caught.value)
    assert "SECRET" not in "".join(traceback.format_exception(caught.value))


def test_the_position_of_a_yaml_error_is_in_the_message():
    with pytest.raises(BadKubeconfig, match="not YAML at line 2, column"):
        parse_kubeconfig("a: b\nc: d: e\n")


def test_two_documents_are_not_called_broken_yaml():
    text = render_kubeconfig(ClientConfig("https://192.0.2.1:6443", token="t"), "one")

    with pytest.raises(BadKubeconfig, match="2 YAML documents, and a kubeconfig is one"):
        parse_kubeconfig(f"{text}---\n{text}")
    assert parse_kubeconfig(f"---\n{text}---\n").server == "https://192.0.2.1:6443"


@pytest.mark.parametrize(
    "server", ["https://h/latest/user-data#", "https://h/x?y=", "https://h/?", "https://h#"]
)
def test_a_server_with_a_query_or_a_fragment_is_refused(server):
    """Behind a `#` the path of every request would be lost, and the author of the kubeconfig would choose what is asked."""
    with pytest.raises(BadKubeconfig, match="write it as https://HOST or https://HOST:PORT"):
        parse_kubeconfig(config({"server": server}))
