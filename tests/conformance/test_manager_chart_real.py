"""Two managers, as the chart's pods, before a real API server that judges their rights; the active one is killed."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.conformance.chart_rig import Helm, container_of
from tests.conformance.chart_rights_rig import KINDS
from tests.conformance.real_cluster import ENDING_WITH_US, Cluster, free_port
from tests.conformance.test_chart_rights_real import token_of
from tests.conformance.test_manager_chart import CHART, NAME, PLACE
from tests.e2e.processes import SMALL, SPEED, WINDROW, Shell

from windrow.app.clock import SystemClock
from windrow.app.embedded import LEASE_NAME
from windrow.client.client import Client
from windrow.client.http_transport import HttpTransport
from windrow.clusters.api.kinds import CLUSTER, HARVESTER_CONFIG, MACHINE
from windrow.core.formats.yaml import load_all
from windrow.kubernetes.conditions import is_true
from windrow.kubernetes.errors import KubeError
from windrow.kubernetes.kubeconfig import SERVICE_ACCOUNT_DIR
from windrow.kubernetes.objects import Raw, nested, new_object
from windrow.kubernetes.resources import LEASE, NAMESPACE, SECRET

pytestmark = [pytest.mark.go, pytest.mark.root, pytest.mark.long, pytest.mark.timeout(240)]

PATIENCE_S = 90.0
USER = 65532
STATE = "/var/lib/windrow"
# A mount namespace in which all is read-only but the pod's volumes, and its account's files lie where a kubelet mounts them; then
# the pod's user, without a capability. $1: the account's files, $2: the volume, $3: where the files belong; then the program.
POD = f"""
mount --make-rprivate / && mount -t tmpfs none /run && mkdir -p "$3" && cp "$1"/* "$3" || exit 90
mount -t tmpfs none /var/lib && mkdir {STATE} && mount --bind "$2" {STATE} || exit 91
mount -t tmpfs none /mnt && chmod 1777 /mnt && mount -o remount,bind,ro / || exit 92
cd /; shift 3
exec setpriv --reuid={USER} --regid={USER} --groups={USER} --no-new-privs --bounding-set=-all --inh-caps=-all "$@"
"""


def why_not() -> str:
    """Why no process can be given a pod's files here; empty if it can."""
    if os.geteuid() != 0:
        return "a mount namespace needs root"
    if missing := [tool for tool in ("unshare", "setpriv") if not shutil.which(tool)]:
        return f"{' and '.join(missing)} not found"
    tried = ["unshare", "--mount", "setpriv", f"--reuid={USER}", "--clear-groups", WINDROW, "version"]
    if subprocess.run(tried, capture_output=True, cwd="/").returncode:
        return f"user {USER} cannot run {WINDROW}, or there are no mount namespaces here"
    return ""


@dataclass(frozen=True)
class PodRig:
    """Pods of one container of the chart, beside the API server of `cluster`."""

    container: Raw
    cluster: Cluster
    folder: Path

    @property
    def account(self) -> Path:
        return self.folder / "account"

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text()

    def logs(self) -> str:
        return "\n".join(
            f"{path.name}:\n{path.read_text()[-3000:]}" for path in sorted(self.folder.glob("pod-*.log"))
        )

    @contextmanager
    def pod(self, name: str, port: int) -> Iterator[subprocess.Popen[bytes]]:
        """The container's command and arguments. Two pods have two addresses; here they have two ports."""
        volume = self.folder / name
        volume.mkdir()
        os.chown(volume, 0, USER)  # as a kubelet does it for fsGroup
        volume.chmod(0o2770)
        arguments = [
            f"--metrics-bind-address=127.0.0.1:{port}" if one.startswith("--metrics-bind-address=") else one
            for one in self.container["args"]
        ]
        given = [str(self.account), str(volume), SERVICE_ACCOUNT_DIR, WINDROW, *arguments]
        with (self.folder / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                [*ENDING_WITH_US, "unshare", "--mount", "sh", "-c", POD, "sh", *given],
                env=self._env(name),
                stdout=log,
                stderr=log,
            )
            try:
                yield process
            finally:
                if process.poll() is None:
                    process.send_signal(signal.SIGTERM)
                process.wait(30)

    def _env(self, name: str) -> dict[str, str]:
        host, _, port = self.cluster.url.removeprefix("https://").rpartition(":")
        return {
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "HOME": STATE,
            "TMPDIR": "/mnt",
            "PYTHONDONTWRITEBYTECODE": "1",
            "HOSTNAME": name,
            "KUBERNETES_SERVICE_HOST": host,
            "KUBERNETES_SERVICE_PORT": port,
            **{one["name"]: one["value"] for one in self.container.get("env", ())},
        }

    async def until(self, what: Callable[[], Awaitable[object]]) -> None:
        """Return once `what` gives something true; a kind may not be served yet."""
        end = time.monotonic() + PATIENCE_S
        while True:
            with suppress(KubeError):
                if await what():
                    return
            assert time.monotonic() < end, self.logs()
            await asyncio.sleep(0.3)


def probe(port: int, path: str) -> int:
    """The status code for a kubelet, which verifies no certificate and sends no credential; 0 for no answer."""
    careless = ssl.create_default_context()
    careless.check_hostname, careless.verify_mode = False, ssl.CERT_NONE
    try:
        with urllib.request.urlopen(f"https://127.0.0.1:{port}{path}", context=careless, timeout=5) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0


async def install(api: Client, objects: list[Raw], rig: PodRig) -> None:
    """The chart's accounts and roles, and the account's files as a kubelet mounts them."""
    if await api.find(NAMESPACE.ref(PLACE)) is None:
        await api.create(NAMESPACE, new_object(NAMESPACE, PLACE))
    for raw in objects:
        if raw["kind"] in KINDS:
            await api.create(KINDS[raw["kind"]], raw)
    rig.account.mkdir()
    (rig.account / "token").write_text(await token_of(api, NAME, PLACE))
    (rig.account / "ca.crt").write_text(rig.cluster.access().ca)


async def apply(api: Client, documents: list[Raw]) -> None:
    kinds = {kind.kind: kind for kind in (SECRET, HARVESTER_CONFIG, CLUSTER)}
    for raw in documents:
        await api.create(kinds[raw["kind"]], raw)


def refused(audit: Path) -> list[str]:
    """What the API server has refused to the managers."""
    lines = [json.loads(line) for line in audit.read_text().splitlines()]
    mine = [one for one in lines if one["user"]["username"] == f"system:serviceaccount:{PLACE}:{NAME}"]
    assert mine
    return sorted({f"{one['verb']} {one['requestURI']}" for one in mine if _code(one) == 403})


def _code(line: Raw) -> int:
    return int(nested(line, "responseStatus", "code", default=0))


async def test_a_manager_goes_on_where_the_active_one_was_killed_and_neither_is_refused_anything(
    cluster: Cluster, reference_program: Callable[[str], str], tmp_path: Path
) -> None:
    if reason := why_not():
        pytest.skip(reason)
    objects = Helm(reference_program("helm"), tmp_path, CHART).render({}, namespace=PLACE)
    rig, shell = PodRig(container_of(objects, name=NAME), cluster, tmp_path), Shell(tmp_path)
    (tmp_path / "small.yaml").write_text(SMALL)
    ports = {name: free_port() for name in ("pod-1", "pod-2")}
    async with HttpTransport(cluster.access(), SystemClock()) as transport:
        api = Client(transport)
        await install(api, objects, rig)

        async def holder() -> str:
            raw = await api.find(LEASE.ref(LEASE_NAME[1], LEASE_NAME[0])) or {}
            return str(nested(raw, "spec", "holderIdentity", default=""))

        async def is_served() -> bool:
            await api.list(CLUSTER)
            await api.list(HARVESTER_CONFIG)
            return bool(await holder())

        async def are_ready() -> bool:
            return all(probe(port, "/readyz") == probe(port, "/healthz") == 200 for port in ports.values())

        async def is_ready() -> bool:
            [raw] = await api.list(CLUSTER)
            return is_true(nested(raw, "status", "conditions"), "Ready")

        with ExitStack() as stack:
            written = ("site/harvester.yaml", "site/credentials.yaml")
            emulate = ("emulate", "--state-dir", "site", "--preload", "small.yaml", "--time-scale", SPEED)
            stack.enter_context(shell.process(*emulate, until=written))
            pods = {name: stack.enter_context(rig.pod(name, port)) for name, port in ports.items()}
            await rig.until(is_served)
            await rig.until(are_ready)  # also the one that waits
            credentials = (tmp_path / "site/credentials.yaml").read_text()
            await apply(api, [*load_all(credentials), *load_all(SMALL)])
            await rig.until(lambda: api.list(MACHINE))
            first = await holder()
            [active] = [name for name in pods if "Acquired Lease" in rig.log(name)]
            pods[active].kill()

            await rig.until(is_ready)
            second = await holder()

        assert await holder() == ""  # given back by the one that was stopped

    assert second not in ("", first)
    assert refused(cluster.audit) == []
    assert "is not applied" not in rig.logs()
    kept = [(tmp_path / name / "state").stat() for name in pods]
    assert [(found.st_uid, found.st_mode & 0o777) for found in kept] == [(USER, 0o700)] * 2
