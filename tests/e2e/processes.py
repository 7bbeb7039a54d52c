"""Windrow's programs as processes of their own, as a user starts them."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
MANIFEST = ROOT / "src" / "windrow" / "demo" / "manifests" / "three-and-two.yaml"
RANCHER_DUMP = ROOT.parent / "shared" / "manifests" / "rancher-rke2-one-node.yaml"
DRIVER = "docker-machine-driver-harvester"
SPEED = "40"
WINDROW = str(Path(sys.executable).with_name("windrow"))

# The demo's cluster with one machine in each pool, for those whom a cluster of any size serves.
SMALL = MANIFEST.read_text().replace("quantity: 3", "quantity: 1").replace("quantity: 2", "quantity: 1")
SMALL_COUNT = 2

needs_kubectl = pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
needs_dump = pytest.mark.skipif(
    not RANCHER_DUMP.exists(), reason=f"the real Rancher dump is not here ({RANCHER_DUMP.name})"
)


@dataclass(frozen=True)
class Shell:
    """A directory to work in, with a home of its own so that kubectl's caches stay apart."""

    folder: Path

    @property
    def env(self) -> Mapping[str, str]:
        home = self.folder / "home"
        home.mkdir(exist_ok=True)
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        return {"PATH": path, "HOME": str(home), "COLUMNS": "80", "LANG": "C.UTF-8"}

    def run(self, *command: str, given: str = "", code: int | None = 0, within: float = 120) -> str:
        """What the command printed; it must end with `code` (None: any)."""
        return self._done(command, given, code, within).stdout

    def complaint(self, *arguments: str, code: int = 2, within: float = 60) -> str:
        """What `windrow …` printed beside its answer, on ending with `code`."""
        return self._done((WINDROW, *arguments), "", code, within).stderr

    def _done(
        self, command: Sequence[str], given: str, code: int | None, within: float
    ) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            command,
            cwd=self.folder,
            env=self.env,
            input=given,
            capture_output=True,
            text=True,
            timeout=within,
        )
        assert code is None or done.returncode == code, (
            f"{command}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        )
        return done

    def windrow(self, *arguments: str, given: str = "", code: int | None = 0, within: float = 120) -> str:
        return self.run(WINDROW, *arguments, given=given, code=code, within=within)

    def kubectl(self, kubeconfig: str, *arguments: str, given: str = "", code: int | None = 0) -> str:
        return self.run("kubectl", "--kubeconfig", kubeconfig, *arguments, given=given, code=code)

    def objects(self, kubeconfig: str, *what: str) -> list[dict[str, Any]]:
        return list(json.loads(self.kubectl(kubeconfig, "get", *what, "-o", "json"))["items"])

    def wait_for_any(self, kubeconfig: str, kind: str, name: str = "") -> None:
        """Return once there is an object of `kind` (called `name`); kubectl can only wait for what exists."""
        deadline = time.monotonic() + 110
        while not any(name in ("", raw["metadata"]["name"]) for raw in self.objects(kubeconfig, kind, "-A")):
            assert time.monotonic() < deadline, f"no {kind} {name} came"

    @contextmanager
    def process(self, *arguments: str, until: Sequence[str]) -> Iterator[subprocess.Popen[bytes]]:
        """`windrow …` in the background, entered once it has written the files `until`; ended by SIGTERM."""
        for name in until:
            (self.folder / name).unlink(missing_ok=True)
        log = (self.folder / f"{arguments[0]}.log").open("ab")
        process = subprocess.Popen(
            [WINDROW, *arguments],
            cwd=self.folder,
            env=self.env,
            stdout=log,
            stderr=log,
        )
        try:
            deadline = time.monotonic() + 110
            while not all((self.folder / name).exists() for name in until):
                assert process.poll() is None, Path(log.name).read_text()
                assert time.monotonic() < deadline, Path(log.name).read_text()
                time.sleep(0.05)
            yield process
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
            process.wait(60)
            log.close()
