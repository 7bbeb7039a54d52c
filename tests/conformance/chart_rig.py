"""The real helm at work on our charts: on the cloud provider's, unless another is named."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from windrow.core.formats.yaml import dump, load_all
from windrow.kubernetes.objects import Raw, nested

ROOT = Path(__file__).parents[2]
CHARTS = ROOT / "deploy" / "charts"
CHART = CHARTS / "harvester-cloud-provider"
NAME, NAMESPACE = "harvester-cloud-provider", "kube-system"
KUBERNETES = "1.34.4"  # a helm that is built without its release's flags takes the cluster for an ancient one
ORIGINALS = ROOT.parent / "shared" / "charts"
ORIGINAL = ORIGINALS / "harvester-cloud-provider.values.yaml"


class Refused(AssertionError):
    """helm did not want to; the message is its own."""


@dataclass(frozen=True)
class Helm:
    program: str
    directory: Path  # for its own files, and for values
    chart: Path = CHART

    def run(self, *argv: str, **env: str) -> str:
        """What helm prints. Raises Refused."""
        home = {name: str(self.directory) for name in ("HOME", "HELM_CACHE_HOME", "HELM_CONFIG_HOME")}
        done = subprocess.run(
            [self.program, *argv], capture_output=True, text=True, timeout=60, env={**home, **env}
        )
        if done.returncode:
            raise Refused(done.stderr + done.stdout)
        return done.stdout

    def lint(self, *argv: str) -> str:
        return self.run("lint", "--strict", "--kube-version", KUBERNETES, str(self.chart), *argv)

    def render(
        self, values: Mapping[str, Any] | Path | None = None, *, apis: Sequence[str] = (), **names: str
    ) -> list[Raw]:
        """The objects of the chart with these values, where the cluster serves `apis` besides its own. Raises Refused."""
        argv = ["--kube-version", KUBERNETES, "--namespace", names.get("namespace", NAMESPACE)]
        argv += [word for api in apis for word in ("--api-versions", api)]
        release = names.get("release", self.chart.name)
        text = self.run("template", release, str(self.chart), *argv, "--values", str(self.file(values)))
        return load_all(text)

    def file(self, values: Mapping[str, Any] | Path | None) -> Path:
        if isinstance(values, Path):
            return values
        path = self.directory / "values.yaml"
        path.write_text(dump(dict(values or {})))
        return path


def of_kind(objects: list[Raw], kind: str) -> list[Raw]:
    return [raw for raw in objects if raw["kind"] == kind]


def the(objects: list[Raw], kind: str, name: str = NAME) -> Raw:
    """The one object of that kind and name."""
    [found] = [raw for raw in of_kind(objects, kind) if raw["metadata"]["name"] == name]
    return found


def pod_of(objects: list[Raw], kind: str = "Deployment", name: str = NAME) -> Raw:
    spec: Raw = nested(the(objects, kind, name), "spec", "template", "spec")
    return spec


def container_of(objects: list[Raw], kind: str = "Deployment", name: str = NAME) -> Raw:
    [container] = pod_of(objects, kind, name)["containers"]
    return dict(container)


def command_of(objects: list[Raw]) -> list[str]:
    container = container_of(objects)
    return [*container["command"], *container["args"]]
