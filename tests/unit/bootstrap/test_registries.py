import pytest

from windrow.bootstrap.registries import render_registries
from windrow.bootstrap.spec import InvalidBootstrapSpec
from windrow.core.formats import yaml

HERE = "/etc/rancher/rke2"


@pytest.mark.parametrize("registries", [{}, {"mirrors": {}, "configs": None}])
def test_no_registries_no_file(registries: dict[str, object]) -> None:
    assert render_registries(registries, HERE) == []


def test_mirrors_are_taken_as_they_are() -> None:
    mirrors = {"docker.io": {"endpoint": ["https://mirror.example"], "rewrite": {"^a/(.*)": "b/$1"}}}

    (file,) = render_registries({"mirrors": mirrors}, HERE)

    assert (file.path, file.mode) == (f"{HERE}/registries.yaml", "0600")
    assert yaml.load(file.content) == {"mirrors": mirrors}


def test_credentials_and_authorities_are_written_where_the_runtime_looks_for_them() -> None:
    config = {
        "authConfigSecretName": "reg-auth",
        "auth": {"username": "me", "password": "hunter2", "identityToken": "t"},
        "caBundle": "PEM",
        "insecureSkipVerify": True,
    }

    registries, authority = render_registries({"configs": {"reg.example:5000": config}}, HERE)

    assert (authority.path, authority.content) == (f"{HERE}/tls/reg.example_5000-caBundle.pem", "PEM")
    assert yaml.load(registries.content)["configs"]["reg.example:5000"] == {
        "auth": {"username": "me", "password": "hunter2", "identity_token": "t"},
        "tls": {"ca_file": authority.path, "insecure_skip_verify": True},
    }


@pytest.mark.parametrize("field", ["authConfigSecretName", "tlsSecretName"])
def test_a_secret_that_was_not_read_is_refused_by_name(field: str) -> None:
    with pytest.raises(InvalidBootstrapSpec, match="'missing', which was not read"):
        render_registries({"configs": {"reg.example": {field: "missing"}}}, HERE)


PEM = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
IN_BASE64 = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCk1JSUIKLS0tLS1FTkQgQ0VSVElGSUNBVEUtLS0tLQo="


@pytest.mark.parametrize("bundle", [PEM, IN_BASE64, f"{IN_BASE64[:20]}\n{IN_BASE64[20:]}\n"])
def test_an_authority_in_base64_is_written_as_the_pem_that_the_runtime_reads(bundle: str) -> None:
    _, authority = render_registries({"configs": {"reg.example": {"caBundle": bundle}}}, HERE)

    assert authority.content == PEM
