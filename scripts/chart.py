"""Pack our Helm chart, and write the one file with which K3s installs it without a chart repository.

python scripts/chart.py                      write the archive into dist/ and the K3s manifest into deploy/manifests/
python scripts/chart.py --check              exit 1 when the manifest does not hold the chart as it is now
python scripts/chart.py --cluster-name NAME  print the manifest for one cluster; more: --distribution rke2,
                                             --image REPOSITORY:TAG, --set KEY=VALUE
"""

from __future__ import annotations

import argparse
import base64
import gzip
import io
import json
import sys
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jsonschema import Draft7Validator
from jsonschema.exceptions import best_match

from windrow.core.formats.yaml import dump, load, load_all
from windrow.kubernetes.objects import is_dns_label

ROOT = Path(__file__).resolve().parent.parent
NAME = "harvester-cloud-provider"
CHART = ROOT / "deploy" / "charts" / NAME
MANIFEST = ROOT / "deploy" / "manifests" / f"{NAME}-k3s.yaml"
NAMESPACE = "kube-system"
DISTRIBUTIONS = ("k3s", "rke2")


def credential(distribution: str = "k3s") -> str:
    """Where Rancher and Windrow put the credential on a cluster's machines."""
    return f"/var/lib/rancher/{distribution}/etc/config-files/cloud-provider-config"


HEAD = """\
# Installs Windrow's cloud provider on {title}. Made by `make chart`, which packs deploy/charts into `chartContent`: nothing
# is downloaded but two images, and those may lie on the machines already.
#
# Put it into /var/lib/rancher/{distribution}/server/manifests/ of the servers, or into the additional manifest of a
# cluster in Rancher.{unnamed}
# Guide: docs/how-to/replace-the-go-cloud-provider.md
"""
UNNAMED = """ It wants the cluster's name: `python scripts/chart.py --cluster-name NAME` prints it with one,
# and a HelmChartConfig of the same name beside it gives one, too."""
TITLES = {"k3s": "K3s", "rke2": "RKE2"}

Values = Mapping[str, Any]


class BadValues(ValueError):
    """Values with which the chart cannot be installed; the message names the value to change."""


def chart_files(folder: Path = CHART) -> dict[str, bytes]:
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


def render_head(values: Values, distribution: str = "k3s") -> str:
    unnamed = "" if values.get("global") else UNNAMED
    return HEAD.format(title=TITLES[distribution], distribution=distribution, unnamed=unnamed)


def render_manifest(archive: bytes, values: Values, distribution: str = "k3s") -> str:
    spec = {
        # The Job that installs it runs before there is a pod network, and on nodes that wait for a cloud provider.
        "bootstrap": True,
        "targetNamespace": NAMESPACE,
        # The default, reinstall, takes the addresses of all services away when an upgrade fails.
        "failurePolicy": "abort",
        "valuesContent": dump(dict(values)),
        "chartContent": base64.b64encode(archive).decode(),
    }
    raw = {
        "apiVersion": "helm.cattle.io/v1",
        "kind": "HelmChart",
        "metadata": {"name": NAME, "namespace": NAMESPACE},
        "spec": spec,
    }
    return render_head(values, distribution) + dump(raw)


def manifest_values(
    cluster: str = "", image: str = "", settings: Sequence[str] = (), distribution: str = "k3s"
) -> dict[str, Any]:
    values: dict[str, Any] = {"cloudConfigPath": credential(distribution)}
    if cluster:
        values["global"] = {"cattle": {"clusterName": cluster}}
    if image:
        repository, tag = split_image(image)
        values["image"] = {"repository": repository, "tag": tag} if tag else {"repository": repository}
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
    _validate(values)
    return values


def _validate(values: Values) -> None:
    """The cluster would refuse them only when it installs the chart."""
    schema = json.loads((CHART / "values.schema.json").read_text())
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
    """Repository and tag ("" for none); a registry may have a port."""
    repository, colon, tag = image.rpartition(":")
    return (repository, tag) if colon and "/" not in tag else (image, "")


def is_current(manifest: str, values: Values) -> bool:
    """Whether the manifest holds these values and the chart as it is. Bytes may differ where zlib does."""
    [raw] = load_all(manifest) or [{}]
    packed = base64.b64decode(raw["spec"].pop("chartContent"))
    [wanted] = load_all(render_manifest(b"", values))
    wanted["spec"].pop("chartContent")
    return raw == wanted and unpack(packed) == chart_files() and manifest.startswith(render_head(values))


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--cluster-name", default="", metavar="NAME")
    parser.add_argument("--distribution", default="k3s", choices=DISTRIBUTIONS)
    parser.add_argument("--image", default="", metavar="REPOSITORY[:TAG]")
    parser.add_argument("--set", default=[], action="append", metavar="KEY=VALUE", dest="settings")
    given = parser.parse_args(argv)
    if given.check:
        if MANIFEST.exists() and is_current(MANIFEST.read_text(), manifest_values()):
            return 0
        print(f"{MANIFEST.relative_to(ROOT)} does not hold the chart as it is; run `make chart`")
        return 1
    archive = pack(chart_files())
    if given.cluster_name or given.image or given.settings or given.distribution != "k3s":
        try:
            values = manifest_values(given.cluster_name, given.image, given.settings, given.distribution)
        except BadValues as error:
            print(error, file=sys.stderr)
            return 2
        if not values.get("global"):
            print(
                "warning: without --cluster-name services get load balancers called kubernetes-…",
                file=sys.stderr,
            )
        print(render_manifest(archive, values, given.distribution), end="")
        return 0
    version = load((CHART / "Chart.yaml").read_text())["version"]
    packed = ROOT / "dist" / f"{NAME}-{version}.tgz"
    packed.parent.mkdir(exist_ok=True)
    packed.write_bytes(archive)
    if not MANIFEST.exists() or not is_current(MANIFEST.read_text(), manifest_values()):
        MANIFEST.write_text(render_manifest(archive, manifest_values()))
    print(f"{packed.relative_to(ROOT)}\n{MANIFEST.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
