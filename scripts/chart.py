"""Pack our Helm charts, and write the one file for each guest cluster's with which K3s installs it without a chart repository.

python scripts/chart.py                      write the archives into dist/ and the K3s manifests into deploy/manifests/
python scripts/chart.py --check              exit 1 when a manifest does not hold its chart as it is now
python scripts/chart.py --cluster-name NAME  print the cloud provider's manifest for one cluster; more: --distribution rke2,
                                             --image REPOSITORY:TAG, --set KEY=VALUE,
                                             --images dist/images/images.json (by digest, of `make image`)
python scripts/chart.py --chart harvester-csi-driver --distribution rke2
                                             print that of the CSI driver, which wants no name of the cluster
"""

from __future__ import annotations

import argparse
import base64
import gzip
import io
import json
import posixpath
import re
import sys
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jsonschema import Draft7Validator
from jsonschema.exceptions import best_match

from windrow.core.formats.yaml import dump, load, load_all
from windrow.kubernetes.objects import is_dns_label

ROOT = Path(__file__).resolve().parent.parent
NAMESPACE = "kube-system"
DISTRIBUTIONS = ("k3s", "rke2")


@dataclass(frozen=True, slots=True)
class Chart:
    """One of our charts. `image`: the keys below which its values have the image of its program."""

    name: str
    program: str
    guide: str
    image: tuple[str, ...]
    # Whether the Job that installs it runs before there is a pod network, and on nodes that wait for a cloud provider.
    bootstrap: bool

    @property
    def folder(self) -> Path:
        return ROOT / "deploy" / "charts" / self.name

    @property
    def manifest(self) -> Path:
        return ROOT / "deploy" / "manifests" / f"{self.name}-k3s.yaml"


PROVIDER = Chart(
    "harvester-cloud-provider",
    "cloud provider",
    "docs/how-to/replace-the-go-cloud-provider.md",
    image=("image",),
    bootstrap=True,
)
CSI_DRIVER = Chart(
    "harvester-csi-driver",
    "CSI driver",
    "docs/how-to/replace-the-go-csi-driver.md",
    image=("image", "harvester", "csiDriver"),
    bootstrap=False,
)
CHARTS = {chart.name: chart for chart in (PROVIDER, CSI_DRIVER)}
# The manager's is for a Kubernetes that is there already, by helm: it has no manifest.
MANAGER = ROOT / "deploy" / "charts" / "windrow"


def credential(distribution: str = "k3s") -> str:
    """Where Rancher and Windrow put the credential on a cluster's machines."""
    return f"/var/lib/rancher/{distribution}/etc/config-files/cloud-provider-config"


HEAD = """\
# Installs Windrow's {program} on {title}. Made by `make chart`, which packs deploy/charts into `chartContent`: nothing
# is downloaded but images, and those may lie on the machines already.
#
# Put it into /var/lib/rancher/{distribution}/server/manifests/ of the servers, or into the additional manifest of a
# cluster in Rancher.{unnamed}
# Guide: {guide}
"""
UNNAMED = """ It wants the cluster's name: `python scripts/chart.py --cluster-name NAME` prints it with one,
# and a HelmChartConfig of the same name beside it gives one, too."""
TITLES = {"k3s": "K3s", "rke2": "RKE2"}

Values = Mapping[str, Any]


class BadValues(ValueError):
    """Values with which the chart cannot be installed; the message names the value to change."""


def chart_files(folder: Path = PROVIDER.folder) -> dict[str, bytes]:
    """The files of the chart by their names in its archive. Hidden files stay out, as .helmignore says."""
    found = sorted(path for path in folder.rglob("*") if path.is_file() and not path.name.startswith("."))
    return {f"{folder.name}/{path.relative_to(folder)}": path.read_bytes() for path in found}


def pack(files: Mapping[str, bytes]) -> bytes:
    """The archive. The same files give the same bytes, as far as zlib does."""
    tape = io.BytesIO()
    with tarfile.open(fileobj=tape, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), 0o644
            archive.addfile(entry, io.BytesIO(content))
    return gzip.compress(tape.getvalue(), 9, mtime=0)


def unpack(archive: bytes) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(archive), mode="r:gz") as tape:
        return {entry.name: tape.extractfile(entry).read() for entry in tape}  # type: ignore[union-attr]


def render_head(values: Values, distribution: str = "k3s", chart: Chart = PROVIDER) -> str:
    return HEAD.format(
        program=chart.program,
        guide=chart.guide,
        title=TITLES[distribution],
        distribution=distribution,
        unnamed="" if chart != PROVIDER or values.get("global") else UNNAMED,
    )


def render_manifest(
    archive: bytes, values: Values, distribution: str = "k3s", chart: Chart = PROVIDER
) -> str:
    spec = {
        **({"bootstrap": True} if chart.bootstrap else {}),
        "targetNamespace": NAMESPACE,
        # The default, reinstall, takes the addresses of all services away, or the driver of all volumes, when an upgrade fails.
        "failurePolicy": "abort",
        "valuesContent": dump(dict(values)),
        "chartContent": base64.b64encode(archive).decode(),
    }
    raw = {
        "apiVersion": "helm.cattle.io/v1",
        "kind": "HelmChart",
        "metadata": {"name": chart.name, "namespace": NAMESPACE},
        "spec": spec,
    }
    return render_head(values, distribution, chart) + dump(raw)


def manifest_values(
    cluster: str = "",
    image: str = "",
    settings: Sequence[str] = (),
    distribution: str = "k3s",
    chart: Chart = PROVIDER,
) -> dict[str, Any]:
    values = _own_values(chart, distribution)
    if cluster and chart != PROVIDER:
        raise BadValues(f"--cluster-name {cluster}: the chart {chart.name} takes none; leave it out")
    if cluster:
        values["global"] = {"cattle": {"clusterName": cluster}}
    if image:
        repository, tag = split_image(image)
        place: dict[str, Any] = {"repository": repository, "tag": tag} if tag else {"repository": repository}
        for step in reversed(chart.image):
            place = {step: place}
        values |= place
    for setting in settings:
        path, equals, text = setting.partition("=")
        if not path or not equals:
            raise BadValues(
                f"--set {setting}: write it as KEY=VALUE, such as cloudConfig.secretName=cloud-config"
            )
        place = values
        *way, last = path.split(".")
        for step in way:
            place = place.setdefault(step, {})
            if not isinstance(place, dict):
                raise BadValues(
                    f"--set {setting}: {step} has a value already, so nothing can be set below it"
                )
        place[last] = load(text)
    _validate(values, chart)
    return values


def _own_values(chart: Chart, distribution: str) -> dict[str, Any]:
    """What holds for every cluster of the distribution."""
    if chart == PROVIDER:
        return {"cloudConfigPath": credential(distribution)}
    # The CSI driver's chart takes the directory. RKE2 brings the definitions of snapshots, and in no order with this chart:
    # its installation is tried again until they are there.
    values: dict[str, Any] = {"cloudConfig": {"hostPath": f"{posixpath.dirname(credential(distribution))}/"}}
    return values | ({"snapshots": {"enabled": True}} if distribution == "rke2" else {})


def _validate(values: Values, chart: Chart) -> None:
    """The cluster would refuse them only when it installs the chart."""
    schema = json.loads((chart.folder / "values.schema.json").read_text())
    unknown = sorted(set(values) - set(schema["properties"]))
    if unknown:
        raise BadValues(
            f"{unknown[0]} is no value of the chart {chart.name}; deploy/charts/{chart.name}/values.yaml has them all"
        )
    error = best_match(Draft7Validator(schema).iter_errors(values))
    if error is not None:
        raise BadValues(
            f"the chart does not take {'.'.join(map(str, error.absolute_path)) or 'this'}: {error.message}"
        )
    name = values.get("global", {}).get("cattle", {}).get("clusterName", "")
    if name and not is_dns_label(name):
        raise BadValues(
            f"the cluster name {name!r} is not usable: write it as in Rancher, lower-case letters, digits, dashes"
        )


def split_image(image: str) -> tuple[str, str]:
    """Repository and tag ("" for none); a registry may have a port. A digest is a part of the tag, or stands in its place: the chart
    joins both with a colon. Raises BadValues for a digest that is none."""
    named, at, digest = image.partition("@")
    if at and not re.fullmatch(r"sha256:[0-9a-f]{64}", digest):
        raise BadValues(
            f"--image {image}: a digest is written as sha256: and 64 digits, as in dist/images/images.json"
        )
    repository, colon, tag = named.rpartition(":")
    if not colon or "/" in tag:
        repository, tag = named, ""
    if not at:
        return repository, tag
    return (repository, f"{tag}@{digest}") if tag else (f"{repository}@sha256", digest.partition(":")[2])


def released_image(file: Path, chart: Chart) -> str:
    """The image of the chart's program, by its digest, as `make image` has written it to `file`. Raises BadValues."""
    try:
        found = json.loads(file.read_text())[chart.name]
        return f"{found['image']}@{found['digest']}"
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BadValues(
            f"--images {file}: wanted what `make image` writes, dist/images/images.json: {error!r}"
        ) from error


def is_current(chart: Chart) -> bool:
    """Whether its K3s manifest holds the chart as it is. Bytes may differ where zlib does."""
    if not chart.manifest.exists():
        return False
    manifest, values = chart.manifest.read_text(), manifest_values(chart=chart)
    [raw] = load_all(manifest) or [{}]
    packed = base64.b64decode(raw["spec"].pop("chartContent"))
    [wanted] = load_all(render_manifest(b"", values, chart=chart))
    wanted["spec"].pop("chartContent")
    head = render_head(values, chart=chart)
    return raw == wanted and unpack(packed) == chart_files(chart.folder) and manifest.startswith(head)


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--chart", default="", choices=("", *CHARTS))
    parser.add_argument("--cluster-name", default="", metavar="NAME")
    parser.add_argument("--distribution", default="", choices=("", *DISTRIBUTIONS))
    parser.add_argument("--image", default="", metavar="REPOSITORY[:TAG][@DIGEST]")
    parser.add_argument("--images", type=Path, metavar="FILE")
    parser.add_argument("--set", default=[], action="append", metavar="KEY=VALUE", dest="settings")
    given = parser.parse_args(argv)
    if given.check:
        return max(map(_check, CHARTS.values()))
    if given.image and given.images:
        parser.error("--image and --images both name the image; leave one out")
    if any((given.chart, given.cluster_name, given.image, given.images, given.settings, given.distribution)):
        return _print_manifest(CHARTS[given.chart or PROVIDER.name], given)
    for chart in CHARTS.values():
        _write(chart)
    print(_pack(MANAGER)[0].relative_to(ROOT))
    return 0


def _check(chart: Chart) -> int:
    if is_current(chart):
        return 0
    print(f"{chart.manifest.relative_to(ROOT)} does not hold the chart as it is; run `make chart`")
    return 1


def _print_manifest(chart: Chart, given: argparse.Namespace) -> int:
    distribution = given.distribution or "k3s"
    try:
        image = released_image(given.images, chart) if given.images else given.image
        values = manifest_values(given.cluster_name, image, given.settings, distribution, chart)
    except BadValues as error:
        print(error, file=sys.stderr)
        return 2
    if chart == PROVIDER and not values.get("global"):
        print(
            "warning: without --cluster-name services get load balancers called kubernetes-…",
            file=sys.stderr,
        )
    print(render_manifest(pack(chart_files(chart.folder)), values, distribution, chart), end="")
    return 0


def _write(chart: Chart) -> None:
    packed, archive = _pack(chart.folder)
    if not is_current(chart):
        chart.manifest.write_text(render_manifest(archive, manifest_values(chart=chart), chart=chart))
    print(f"{packed.relative_to(ROOT)}\n{chart.manifest.relative_to(ROOT)}")


def _pack(folder: Path) -> tuple[Path, bytes]:
    """Write the archive of the chart in `folder` into dist/."""
    version = load((folder / "Chart.yaml").read_text())["version"]
    archive = pack(chart_files(folder))
    packed = ROOT / "dist" / f"{folder.name}-{version}.tgz"
    packed.parent.mkdir(exist_ok=True)
    packed.write_bytes(archive)
    return packed, archive


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
