"""The process as the chart's pod confines it: no capability, nothing to write to but a small /tmp, one credential."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from windrow.kubernetes.kubeconfig import ClientConfig, render_kubeconfig

PROGRAM = Path(sys.executable).with_name("harvester-cloud-provider")
# Where anybody may go; what is mounted there is seen by the process alone.
PLACE = "/mnt"
# A mount namespace in which all is read-only but the pod's /tmp; then the user, without a right more than the user's.
CONFINED = """
mount --make-rprivate / && mount -t tmpfs none "$1" && cp -p "$2" "$1/cloud-config" && mount -o remount,bind,ro / || exit 90
if touch "$4/written" 2>/dev/null; then exit 91; fi
user=$3; shift 4
exec setpriv --reuid="$user" --regid="$user" --clear-groups --no-new-privs --bounding-set=-all --inh-caps=-all "$@"
"""


def why_not(user: int) -> str:
    """Why a process cannot be confined here; empty if it can."""
    if os.geteuid() != 0:
        return "a mount namespace needs root"
    if missing := [tool for tool in ("unshare", "setpriv") if not shutil.which(tool)]:
        return f"{' and '.join(missing)} not found"
    tried = ["unshare", "--mount", "setpriv", f"--reuid={user}", "--clear-groups", sys.executable, "-c", ""]
    if subprocess.run(tried, capture_output=True).returncode:
        return f"user {user} cannot run {sys.executable}, or there are no mount namespaces here"
    return ""


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def ask(port: int, path: str) -> tuple[int, str]:
    careless = ssl.create_default_context()
    careless.check_hostname, careless.verify_mode = False, ssl.CERT_NONE
    try:
        with urllib.request.urlopen(f"https://127.0.0.1:{port}{path}", context=careless, timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


@pytest.mark.root
@pytest.mark.parametrize(
    ("user", "mode"),
    [
        pytest.param(0, 0o600, id="root, whose file it is"),
        pytest.param(65532, 0o440, id="a user with a Secret of its group"),
    ],
)
def test_it_runs_with_no_more_than_the_chart_gives(tmp_path: Path, user: int, mode: int) -> None:
    if reason := why_not(user):
        pytest.skip(reason)
    credential = tmp_path / "cloud-config"
    credential.write_text(
        render_kubeconfig(ClientConfig("https://127.0.0.1:1", token="t", namespace="default"), "it")
    )
    os.chown(credential, 0, user)
    credential.chmod(mode)
    port = free_port()
    program = [
        str(PROGRAM),
        f"--cloud-config={PLACE}/cloud-config",
        f"--kubeconfig={PLACE}/cloud-config",
        "--bind-address=127.0.0.1",
        f"--secure-port={port}",
    ]
    arguments = ["confined", PLACE, str(credential), str(user), str(tmp_path), *program]
    log = tmp_path / "log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            ["unshare", "--mount", "sh", "-c", CONFINED, *arguments],
            stdout=out,
            stderr=subprocess.STDOUT,
            env={"PATH": os.environ["PATH"], "TMPDIR": PLACE},
        )
        try:
            answers = wait_for_answers(port, process)
            process.send_signal(signal.SIGTERM)
            code = process.wait(60)
        finally:
            process.kill()
            process.wait()

    said = log.read_text()
    assert answers == {"/healthz": (200, "ok"), "/readyz": (200, "ok")}, said
    assert code == 0, said
    assert "the token of user" in said  # it has read the credential


def wait_for_answers(port: int, process: subprocess.Popen[bytes]) -> dict[str, tuple[int, str]]:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        try:
            return {path: ask(port, path) for path in ("/healthz", "/readyz")}
        except OSError:
            time.sleep(0.1)
    return {}
