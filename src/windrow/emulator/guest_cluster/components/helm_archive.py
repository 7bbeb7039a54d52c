"""What a HelmChart names: an archive in it or on the server's disk, or a chart of a repository.

Archives come from users: one is read up to fixed sizes, only its metadata and values, and nothing is unpacked to a disk.
"""

from __future__ import annotations

import base64
import binascii
import io
import posixpath
import tarfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from windrow.core.formats.yaml import NotYaml, load
from windrow.kubernetes.objects import nested

MAX_ARCHIVE = 4 << 20  # bytes, unpacked
_STATIC = "/static/"
_HARVESTER_REPOSITORY = "charts.harvesterhci.io"
# Versions in Harvester's repository (reference/04 §8.4): minor -> first and last patch.
_PUBLISHED: Mapping[str, Mapping[tuple[int, int], tuple[int, int]]] = {
    "harvester-cloud-provider": {(0, 1): (1, 14), (0, 2): (0, 15)},
    "harvester-csi-driver": {(0, 1): (1, 31)},
}
# Charts that other repositories are known to have: they are installed without effect.
_OTHER_REPOSITORIES = (
    "charts.rancher.io",
    "releases.rancher.com",
    "charts.jetstack.io",
    "charts.longhorn.io",
)


class ChartNotFound(Exception):
    """helm finds no chart; the message is helm's."""


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart's name, version ("" for the newest) and own values."""

    name: str
    version: str = ""
    values: Mapping[str, Any] = field(default_factory=dict)

    @property
    def number(self) -> tuple[int, ...]:
        """The version as numbers, () for the newest."""
        return _read_number(self.version)


def find_chart(spec: Mapping[str, Any], read_file: Callable[[str], bytes | None]) -> Chart:
    """The chart of a HelmChart's `spec`. `read_file` reads below the server's directory `static`. Raises
    ChartNotFound."""
    if content := str(spec.get("chartContent") or ""):
        try:
            return read_archive(base64.b64decode("".join(content.split()), validate=True))
        except binascii.Error as error:
            raise ChartNotFound(f"base64: invalid input: {error}") from error
    name, repository = str(spec.get("chart") or ""), str(spec.get("repo") or "")
    if "://" in name:
        return _find_by_url(name, read_file)
    if not name:
        raise ChartNotFound("Error: non-absolute URLs should be in form of repo_name/path_to_chart, got: ")
    if not repository:
        raise ChartNotFound(f"Error: INSTALLATION FAILED: path {name!r} not found")
    return _find_in_repository(name, str(spec.get("version") or ""), repository)


def _find_by_url(url: str, read_file: Callable[[str], bytes | None]) -> Chart:
    path = url.partition(_STATIC)[2] if "%{KUBERNETES_API}%" in url else ""
    found = read_file(path) if path else None
    if found is not None:
        return read_archive(found)
    raise ChartNotFound(f"Error: INSTALLATION FAILED: failed to fetch {url} : 404 Not Found")


def _find_in_repository(name: str, version: str, repository: str) -> Chart:
    try:
        host = urlsplit(repository).hostname or ""
    except ValueError:
        host = ""
    if host in _OTHER_REPOSITORIES:
        return Chart(name, version)
    if host != _HARVESTER_REPOSITORY:
        raise ChartNotFound(
            f'Error: INSTALLATION FAILED: looks like "{repository}" is not a valid chart repository or cannot be reached '
            "(the simulated network has no other)"
        )
    published = _PUBLISHED.get(name)
    if published is None:
        raise ChartNotFound(
            f'Error: INSTALLATION FAILED: chart "{name}" not found in {repository} repository'
        )
    number = _read_number(version)
    low, high = published.get((number[0], number[1]), (1, 0)) if len(number) == 3 else (0, 0)
    if version and not (len(number) == 3 and low <= number[2] <= high):
        raise ChartNotFound(
            f'Error: INSTALLATION FAILED: chart "{name}" matching {version} not found in {name} index. '
            "(try 'helm repo update'): no chart version found for "
            f"{name}-{version}"
        )
    return Chart(name, version)


def read_archive(content: bytes) -> Chart:
    """The chart of a `.tgz`. Raises ChartNotFound."""
    try:
        unpacked = zlib.decompressobj(16 + zlib.MAX_WBITS).decompress(content, MAX_ARCHIVE)
        files = _read_files(unpacked)
        metadata = load(files.get("Chart.yaml", b"").decode("utf-8", "replace"))
        values = load(files.get("values.yaml", b"").decode("utf-8", "replace"))
    except (zlib.error, tarfile.TarError, EOFError, ValueError, OverflowError, NotYaml) as error:
        raise ChartNotFound(f"Error: INSTALLATION FAILED: the archive is not a chart: {error}") from error
    name = nested(metadata, "name") if isinstance(metadata, dict) else None
    if not isinstance(name, str) or not name:
        raise ChartNotFound("Error: INSTALLATION FAILED: Chart.yaml file is missing")
    return Chart(name, str(metadata.get("version") or ""), values if isinstance(values, dict) else {})


def _read_files(unpacked: bytes) -> Mapping[str, bytes]:
    """The files of the chart itself, without those of its subcharts."""
    found: dict[str, bytes] = {}
    with tarfile.open(fileobj=io.BytesIO(unpacked), mode="r:") as archive:
        for member in archive:
            directory, name = posixpath.split(posixpath.normpath(member.name))
            file = archive.extractfile(member) if member.isfile() and "/" not in directory else None
            if file is not None and name in ("Chart.yaml", "values.yaml"):
                found[name] = file.read()
    return found


def _read_number(version: str) -> tuple[int, ...]:
    parts = version.removeprefix("v").split("+")[0].split("-")[0].split(".")
    return (
        tuple(int(part) for part in parts) if all(part.isdigit() and len(part) < 7 for part in parts) else ()
    )
