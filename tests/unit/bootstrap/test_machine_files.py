"""Files that a Cluster gives its machines, on either distribution."""

from collections.abc import Callable
from typing import Any

import pytest

from windrow.bootstrap import DISTRIBUTIONS
from windrow.bootstrap.machine_files import POD_SECURITY
from windrow.bootstrap.spec import BootstrapSpec, InvalidBootstrapSpec, Role
from windrow.core.formats import yaml
from windrow.core.formats.version import Version

Make = Callable[..., BootstrapSpec]
VERSIONS = {"rke2": "v1.35.1+rke2r1", "k3s": "v1.35.1+k3s1"}


@pytest.fixture(params=sorted(VERSIONS))
def distribution(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def entries(spec: BootstrapSpec) -> dict[str, dict[str, Any]]:
    document = yaml.load(DISTRIBUTIONS[Version.parse(spec.version).distribution].render(spec))
    return {file["path"]: file for file in document["write_files"]}


def selected(*items: dict[str, str], selector: Any = None, **source: Any) -> dict[str, Any]:
    secret = {"name": "site", "items": list(items), **source}
    return {"machineLabelSelector": selector, "fileSources": [{"secret": secret}]}


CONTENTS = {("secret", "site", "text"): b"hello\n", ("secret", "site", "raw"): b"\x00\xff"}


@pytest.fixture
def a_server(a_spec: Make, distribution: str) -> Make:
    """Makes the first server of either distribution."""
    base: dict[str, Any] = {"version": VERSIONS[distribution], "file_contents": CONTENTS}
    return lambda **changes: a_spec(**(base | changes))


def test_files_are_written_byte_for_byte_where_their_selector_fits(a_server: Make) -> None:
    fits = selected(
        {"key": "text", "path": "/a"}, {"key": "raw", "path": "/b"}, selector={"matchLabels": {"x": "y"}}
    )
    other = selected({"key": "text", "path": "/c"}, selector={"matchLabels": {"x": "z"}})

    found = entries(a_server(selector_files=[fits, other], machine_labels={"x": "y"}))

    assert found["/a"]["content"] == "hello\n"
    assert "encoding" not in found["/a"]
    assert (found["/b"]["content"], found["/b"]["encoding"]) == ("AP8=", "b64")
    assert "/c" not in found


def test_a_file_has_its_own_mode_or_that_of_its_source_or_is_roots_alone(a_server: Make) -> None:
    files = [
        selected(
            {"key": "text", "path": "/a", "permissions": "755"},
            {"key": "text", "path": "/b"},
            defaultPermissions="0640",
        ),
        selected({"key": "text", "path": "/c"}),
    ]

    found = entries(a_server(selector_files=files))

    assert [found[path]["permissions"] for path in ("/a", "/b", "/c")] == ["0755", "0640", "0600"]


def test_a_file_that_was_not_read_is_refused_by_name(a_server: Make) -> None:
    with pytest.raises(InvalidBootstrapSpec, match="'gone' of secret 'site', which was not read"):
        entries(a_server(selector_files=[selected({"key": "gone", "path": "/a"})]))


@pytest.mark.parametrize("template", POD_SECURITY)
def test_a_template_of_pod_security_is_a_file_that_the_api_server_is_told_of(
    a_server: Make, distribution: str, template: str
) -> None:
    path = f"/etc/rancher/{distribution}/config/rancher-psact.yaml"
    arguments = {"kube-apiserver-arg": ["audit-log-maxage=30"]}

    found = entries(a_server(pod_security=template, global_config=arguments))

    config = yaml.load(found[f"/etc/rancher/{distribution}/config.yaml.d/50-rancher.yaml"]["content"])
    if distribution == "rke2":
        assert config["pod-security-admission-config-file"] == path
        assert config["kube-apiserver-arg"] == ["audit-log-maxage=30"]
    else:
        assert config["kube-apiserver-arg"] == [
            "audit-log-maxage=30",
            f"admission-control-config-file={path}",
        ]
    (plugin,) = yaml.load(found[path]["content"])["plugins"]
    level = template.removeprefix("rancher-")
    assert plugin["configuration"]["defaults"]["enforce"] == level
    assert ("kube-system" in plugin["configuration"]["exemptions"]["namespaces"]) == (level == "restricted")


def test_only_servers_with_an_api_have_the_template(a_server: Make) -> None:
    spec = a_server(pod_security="rancher-restricted", roles=frozenset({Role.ETCD}))

    assert not [path for path in entries(spec) if path.endswith("psact.yaml")]


@pytest.mark.parametrize(
    "config",
    [
        {"pod-security-admission-config-file": "/etc/own.yaml"},
        {"kube-apiserver-arg": ["--admission-control-config-file=/etc/own.yaml"]},
        {"kube-apiserver-arg": "admission-control-config-file=/etc/own.yaml"},
    ],
)
def test_a_template_beside_a_file_of_the_users_own_is_a_contradiction(
    a_server: Make, distribution: str, config: dict[str, Any]
) -> None:
    module = DISTRIBUTIONS[distribution]

    (told,) = module.list_contradictions(a_server(pod_security="rancher-restricted", global_config=config))

    assert "names another file; the API server reads one" in told.message
    assert module.list_contradictions(a_server(global_config=config)) == []


def test_what_is_given_changes_the_revision_and_what_is_not_given_keeps_it(
    a_server: Make, distribution: str
) -> None:
    digest = DISTRIBUTIONS[distribution].config_hash
    given = [
        {"environment": {"A": "b"}},
        {"selector_files": [selected({"key": "text", "path": "/a"})]},
        {"pod_security": "rancher-privileged"},
    ]

    assert len({digest(a_server()), *(digest(a_server(**one)) for one in given)}) == 4
    assert digest(a_server(file_contents={})) == digest(a_server())
