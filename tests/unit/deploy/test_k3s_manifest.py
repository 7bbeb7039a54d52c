"""The one file for each chart with which K3s installs it."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from scripts import chart
from tests.support.clock import LoopClock, run_driven

from windrow.apiserver.server import ApiServer
from windrow.apiserver.storage import MemoryStore
from windrow.core.formats.json import dumps
from windrow.core.formats.yaml import load
from windrow.core.rng import Rng
from windrow.kubernetes.requests import JSON, Reply, Request
from windrow.kubernetes.resources import ApiResource

SCHEMA = Path(__file__).parents[4] / "shared" / "crds" / "helm.cattle.io_helmcharts.yaml"
DIGEST = f"sha256:{'0123456789abcdef' * 4}"
HELM_CHART = ApiResource("helm.cattle.io", "v1", "HelmChart", "helmcharts")


def manifest(of: chart.Chart = chart.PROVIDER) -> dict[str, Any]:
    raw: dict[str, Any] = load(of.manifest.read_text())
    return raw


@pytest.fixture(params=chart.CHARTS)
def each(request: pytest.FixtureRequest) -> chart.Chart:
    return chart.CHARTS[request.param]


def test_it_holds_the_chart_as_it_is(each: chart.Chart) -> None:
    assert chart.unpack(base64.b64decode(manifest(each)["spec"]["chartContent"])) == chart.chart_files(
        each.folder
    )
    assert chart.main(["--check"]) == 0


def test_a_chart_that_is_not_the_manifest_s_is_noticed(
    each: chart.Chart, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = chart.chart_files(each.folder)
    other = {**kept, f"{each.name}/values.yaml": b"replicasCount: 7"}
    monkeypatch.setattr(
        chart, "chart_files", lambda folder: other if folder == each.folder else packed_files(folder)
    )

    assert chart.main(["--check"]) == 1

    assert capsys.readouterr().out.splitlines() == [
        f"deploy/manifests/{each.name}-k3s.yaml does not hold the chart as it is; run `make chart`"
    ]


packed_files = chart.chart_files


def test_it_needs_no_repository(each: chart.Chart) -> None:
    spec = manifest(each)["spec"]

    assert not {"repo", "chart", "version"} & set(spec)
    assert spec["targetNamespace"] == "kube-system"


def test_the_cloud_provider_alone_comes_before_the_pod_network() -> None:
    assert manifest()["spec"]["bootstrap"] is True
    assert "bootstrap" not in manifest(chart.CSI_DRIVER)["spec"]


def test_an_upgrade_that_fails_takes_nothing_away(each: chart.Chart) -> None:
    assert manifest(each)["spec"]["failurePolicy"] == "abort"


def test_the_credential_is_where_k3s_machines_have_it() -> None:
    values = load(manifest()["spec"]["valuesContent"])
    of_driver = load(manifest(chart.CSI_DRIVER)["spec"]["valuesContent"])

    assert values == {"cloudConfigPath": "/var/lib/rancher/k3s/etc/config-files/cloud-provider-config"}
    assert of_driver == {"cloudConfig": {"hostPath": "/var/lib/rancher/k3s/etc/config-files/"}}


def test_the_csi_driver_s_manifest_for_rke2_counts_on_its_definitions_of_snapshots(
    capsys: pytest.CaptureFixture[str],
) -> None:
    argv = ["--chart=harvester-csi-driver", "--distribution=rke2", "--image=registry:5000/ours/csi:1.2"]

    assert chart.main(argv) == 0

    told = capsys.readouterr()
    assert load(load(told.out)["spec"]["valuesContent"]) == {
        "cloudConfig": {"hostPath": "/var/lib/rancher/rke2/etc/config-files/"},
        "snapshots": {"enabled": True},
        "image": {"harvester": {"csiDriver": {"repository": "registry:5000/ours/csi", "tag": "1.2"}}},
    }
    assert load(told.out)["metadata"]["name"] == "harvester-csi-driver"
    assert "replace-the-go-csi-driver.md" in told.out.partition("apiVersion")[0]
    assert "cluster's name" not in told.out
    assert told.err == ""


def test_a_guide_that_a_manifest_names_is_there(each: chart.Chart) -> None:
    assert (chart.ROOT / each.guide).exists()


def test_the_same_chart_gives_the_same_archive() -> None:
    assert chart.pack(chart.chart_files()) == chart.pack(chart.chart_files())


def test_the_archive_has_the_chart_s_name_before_every_file_and_nothing_hidden() -> None:
    names = list(chart.chart_files())

    assert "harvester-cloud-provider/Chart.yaml" in names
    assert "harvester-cloud-provider/charts/kube-vip/Chart.yaml" in names
    assert not [name for name in names if "/." in name or not name.startswith("harvester-cloud-provider/")]


def test_one_cluster_s_manifest_has_its_name_image_and_settings(capsys: pytest.CaptureFixture[str]) -> None:
    argv = [
        "--cluster-name=edge",
        "--image=registry:5000/ours/provider:1.2",
        "--set=kube-vip.enabled=false",
        "--set=extraArgs=[--v=3]",
    ]

    assert chart.main(argv) == 0

    values = load(load(capsys.readouterr().out)["spec"]["valuesContent"])
    assert values == {
        "cloudConfigPath": chart.credential(),
        "global": {"cattle": {"clusterName": "edge"}},
        "image": {"repository": "registry:5000/ours/provider", "tag": "1.2"},
        "kube-vip": {"enabled": False},
        "extraArgs": ["--v=3"],
    }


def test_rke2_has_its_credential_elsewhere(capsys: pytest.CaptureFixture[str]) -> None:
    assert chart.main(["--cluster-name=demo", "--distribution=rke2"]) == 0

    values = load(load(capsys.readouterr().out)["spec"]["valuesContent"])
    assert values["cloudConfigPath"] == "/var/lib/rancher/rke2/etc/config-files/cloud-provider-config"


@pytest.mark.parametrize(
    ("image", "parts"),
    [
        ("a/b", ("a/b", "")),
        ("a/b:1", ("a/b", "1")),
        ("host:5000/a/b", ("host:5000/a/b", "")),
        ("host:5000/a:1", ("host:5000/a", "1")),
        (f"a/b:1@{DIGEST}", ("a/b", f"1@{DIGEST}")),
        (f"host:5000/a/b@{DIGEST}", ("host:5000/a/b@sha256", DIGEST[7:])),
    ],
)
def test_a_port_is_no_tag_and_a_digest_stays_whole(image: str, parts: tuple[str, str]) -> None:
    assert chart.split_image(image) == parts
    # As the charts join them.
    assert not parts[1] or ":".join(parts) == image


@pytest.mark.parametrize("digest", ["", "sha256:", "sha256:abc", DIGEST.upper(), f"{DIGEST}0", f"{DIGEST}\n"])
def test_a_digest_that_is_none_is_refused(digest: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert chart.main([f"--image=a/b:1@{digest}"]) == 2

    assert "a digest is written as sha256: and 64 digits" in capsys.readouterr().err


def test_the_image_of_a_release_is_pinned_by_its_digest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    built = {"harvester-csi-driver": {"image": "windrow/harvester-csi-driver:1.2.3", "digest": DIGEST}}
    (tmp_path / "images.json").write_text(json.dumps(built))
    images = f"--images={tmp_path / 'images.json'}"

    assert chart.main([images, "--chart=harvester-csi-driver"]) == 0

    values = load(load(capsys.readouterr().out)["spec"]["valuesContent"])
    pinned = {"repository": "windrow/harvester-csi-driver", "tag": f"1.2.3@{DIGEST}"}
    assert values["image"] == {"harvester": {"csiDriver": pinned}}
    # It is no list of the other chart's.
    assert chart.main([images, "--cluster-name=edge"]) == 2
    assert "images.json: wanted what `make image` writes" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        chart.main([images, "--image=a/b", "--cluster-name=edge"])


@pytest.mark.parametrize("text", ["", "[]", "{", '{"harvester-cloud-provider": 1}'])
def test_a_list_of_images_that_is_none_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    (tmp_path / "images.json").write_text(text)

    assert chart.main([f"--images={tmp_path / 'images.json'}"]) == 2
    assert chart.main([f"--images={tmp_path / 'none.json'}"]) == 2
    assert capsys.readouterr().out == ""


def test_k3s_s_own_schema_knows_every_field() -> None:
    if not SCHEMA.exists():
        pytest.skip("the schemas of helm.cattle.io are not beside this tree (shared/crds)")

    async def story(raw: dict[str, Any]) -> Reply:
        server = ApiServer(MemoryStore(), LoopClock(), Rng(1))
        server.install_crd(load(SCHEMA.read_text()))
        strict = (("fieldValidation", "Strict"),)
        path = HELM_CHART.path("kube-system")
        return await server.local().send(Request("POST", path, strict, body=dumps(raw), content_type=JSON))

    wrong = manifest()
    wrong["spec"]["chartContents"] = "x"

    refused = run_driven(story(wrong))

    assert run_driven(story(manifest())).status == 201
    assert (refused.status, b"chartContents" in refused.body) == (400, True)


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--set=foo"], "write it as KEY=VALUE"),
        (["--set=cloudConfig.secretNam=x"], "'secretNam' was unexpected"),
        (["--set=image.repostory=x"], "'repostory' was unexpected"),
        (["--set=cloudConfigPath.deeper=x"], "has a value already"),
        (["--cluster-name=Demo_X!"], "the cluster name 'Demo_X!' is not usable"),
        (["--chart=harvester-csi-driver", "--cluster-name=x"], "the chart harvester-csi-driver takes none"),
        (["--chart=harvester-csi-driver", "--set=snapshots.enabled=yes!"], "snapshots.enabled"),
        (["--chart=harvester-csi-driver", "--set=cloudConfigPath=/x"], "is no value of the chart"),
    ],
)
def test_what_no_cluster_could_install_is_refused_here(
    argv: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert chart.main(argv) == 2

    told = capsys.readouterr()
    assert words in told.err
    assert told.out == ""


def test_a_manifest_says_where_it_belongs(capsys: pytest.CaptureFixture[str]) -> None:
    chart.main(["--distribution=rke2", "--cluster-name=edge"])

    head = capsys.readouterr().out
    assert "on RKE2" in head
    assert "/var/lib/rancher/rke2/server/manifests/" in head
    assert "k3s" not in head.partition("apiVersion")[0].lower()


def test_a_manifest_without_a_cluster_name_is_warned_of(capsys: pytest.CaptureFixture[str]) -> None:
    chart.main(["--distribution=rke2"])

    assert "without --cluster-name" in capsys.readouterr().err
