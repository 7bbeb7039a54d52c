"""`windrow kubeconfig --merge` and `--remove`: which file, its mode, kubectl's lock, and what is refused."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.unit.cli.conftest import Manager, Windrow

from windrow.cli import exit_codes
from windrow.core.text import encode_base64
from windrow.kubernetes.kubeconfig import ClientConfig, parse_kubeconfig, render_kubeconfig
from windrow.kubernetes.objects import new_object
from windrow.kubernetes.resources import SECRET

GUEST = render_kubeconfig(ClientConfig("https://10.0.0.1:6443", token="s3cret"), "default")
OTHERS = """# mine
current-context: lab
clusters:
- {name: lab, cluster: {server: https://lab}}
contexts: []
users: []
kind: Config
apiVersion: v1
"""


@pytest.fixture
def orchard(windrow: Windrow, manager: Manager) -> Manager:
    """A management API with cluster orchard, which has a kubeconfig."""
    assert windrow("apply", "-f", "cluster.yaml").code == exit_codes.OK
    secret = new_object(SECRET, "orchard-kubeconfig", "fleet-default", data={"value": encode_base64(GUEST)})
    manager.do(lambda api: api.create(SECRET, secret))
    return manager


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_merge_adds_a_context_to_the_file_that_kubectl_reads(windrow: Windrow, orchard: Any, tmp_path: Path):
    answer = windrow("kubeconfig", "orchard", "--merge", env={"HOME": str(tmp_path)})

    path = tmp_path / ".kube" / "config"
    assert (answer.code, answer.out) == (
        exit_codes.OK,
        f"Context orchard of fleet-default/orchard is in {path}\n",
    )
    assert parse_kubeconfig(path.read_text(), "orchard").token == "s3cret"
    assert mode_of(path) == 0o600
    assert mode_of(path.parent) == 0o700
    assert [one.name for one in path.parent.iterdir()] == ["config"]
    assert "s3cret" not in answer.out + answer.err


HOSTILE = {
    "exec": "{exec: {apiVersion: client.authentication.k8s.io/v1, command: sh, args: [-c, id], interactiveMode: Never}}",
    "auth-provider": "{auth-provider: {name: gcp}}",
    "tokenFile": "{tokenFile: /etc/shadow}",
    "client-key": "{client-certificate: /etc/passwd, client-key: /etc/shadow}",
}


@pytest.mark.parametrize(
    "flags", [(), ("--merge",), ("--file", "guest.yaml")], ids=["printed", "merged", "file"]
)
@pytest.mark.parametrize("entry", HOSTILE)
@pytest.mark.parametrize("chosen", ["default", "other"])
def test_what_a_tenant_wrote_into_the_secret_starts_no_program_and_opens_no_file(
    windrow: Windrow, orchard: Manager, tmp_path: Path, flags: tuple[str, ...], entry: str, chosen: str
):
    """A user who may edit Secrets in the namespace may write this one, and an administrator uses it."""
    users = {"default": "{token: t}", "other": "{token: t}", chosen: HOSTILE[entry]}
    text = f"""
current-context: default
clusters: [{{name: c, cluster: {{server: "https://10.0.0.1"}}}}]
contexts: [{{name: default, context: {{cluster: c, user: default}}}}, {{name: other, context: {{cluster: c, user: other}}}}]
users: [{{name: default, user: {users["default"]}}}, {{name: other, user: {users["other"]}}}]
"""
    ref = SECRET.ref("orchard-kubeconfig", "fleet-default")
    orchard.do(lambda api: api.patch(ref, {"data": {"value": encode_base64(text)}}))

    answer = windrow("kubeconfig", "orchard", *flags, env={"HOME": str(tmp_path)})

    assert (answer.code, answer.out) == (exit_codes.REFUSED, "")
    told = " ".join(answer.err.split())
    assert "Secret fleet-default/orchard-kubeconfig is not as the manager writes it" in told
    assert not (tmp_path / ".kube" / "config").exists()
    assert not (tmp_path / "guest.yaml").exists()


@pytest.mark.parametrize(
    ("existing", "changed"), [(("b", "c"), "b"), (("c",), "c"), ((), "c")], ids=["two", "one", "none"]
)
def test_of_several_files_the_first_that_exists_is_changed_and_else_the_last(
    windrow: Windrow, orchard: Any, tmp_path: Path, existing: tuple[str, ...], changed: str
):
    for name in existing:
        (tmp_path / name).write_text(OTHERS)

    windrow("kubeconfig", "orchard", "--merge", env={"KUBECONFIG": os.pathsep.join(("a", "b", "c"))})

    assert parse_kubeconfig((tmp_path / changed).read_text(), "orchard").server == "https://10.0.0.1:6443"
    assert sorted(one for one in "abc" if (tmp_path / one).exists()) == sorted({*existing, changed})


def test_a_link_stays_and_what_it_leads_to_is_private_afterwards(
    windrow: Windrow, orchard: Any, tmp_path: Path
):
    (tmp_path / "real").write_text(OTHERS)
    (tmp_path / "real").chmod(0o644)
    (tmp_path / "link").symlink_to("real")

    assert windrow("kubeconfig", "orchard", "--merge", "--file", "link").code == exit_codes.OK

    assert (tmp_path / "link").is_symlink()
    assert "# mine" in (tmp_path / "real").read_text()
    assert mode_of(tmp_path / "real") == 0o600


def test_remove_gives_the_file_back_as_it_was_also_without_a_manager(
    windrow: Windrow, orchard: Any, tmp_path: Path
):
    path = tmp_path / "config"
    path.write_text(OTHERS)
    windrow("kubeconfig", "orchard", "--merge", "--file", "config", "--context", "o")

    (tmp_path / ".windrow" / "manager.yaml").unlink()
    answer = windrow("kubeconfig", "orchard", "--remove", "--file", "config")
    again = windrow("kubeconfig", "orchard", "--remove", "--file", "config")

    assert (answer.code, answer.out) == (exit_codes.OK, "Context o removed from config\n")
    assert again.code == exit_codes.NOT_FOUND
    assert path.read_text() == OTHERS


def test_a_file_that_kubectl_is_writing_is_left_alone(windrow: Windrow, orchard: Any, tmp_path: Path):
    (tmp_path / "config").write_text(OTHERS)
    (tmp_path / "config.lock").touch()

    answer = windrow("kubeconfig", "orchard", "--merge", "--file", "config")

    assert answer.code == exit_codes.FAILED
    assert "remove that lock file" in answer.err
    assert (tmp_path / "config").read_text() == OTHERS
    assert (tmp_path / "config.lock").exists()


@pytest.mark.parametrize("content", ["kind: Secret\n", "{", "clusters: 7\n", "x: " + "[" * 5000])
def test_a_file_that_is_no_kubeconfig_is_left_as_it_was(
    windrow: Windrow, orchard: Any, tmp_path: Path, content: str
):
    (tmp_path / "config").write_text(content)

    answer = windrow("kubeconfig", "orchard", "--merge", "--file", "config")

    assert answer.code == exit_codes.REFUSED
    assert "Nothing was changed in config: " in answer.err
    assert (tmp_path / "config").read_text() == content
    assert not (tmp_path / "config.lock").exists()


def test_a_pipe_is_not_read(windrow: Windrow, orchard: Any, tmp_path: Path):
    os.mkfifo(tmp_path / "config")

    assert windrow("kubeconfig", "orchard", "--merge", "--file", "config").code == exit_codes.REFUSED


@pytest.mark.parametrize(
    "flags", [("--merge", "--remove"), ("--set-current",), ("--context", "x"), ("--remove", "--set-current")]
)
def test_flags_that_would_have_no_effect_are_refused(windrow: Windrow, flags: tuple[str, ...]):
    assert windrow("kubeconfig", "orchard", *flags).code == exit_codes.USAGE


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
def test_kubectl_reads_what_was_merged_and_goes_on_writing_it(windrow: Windrow, orchard: Any, tmp_path: Path):
    def kubectl(*words: str) -> str:
        command = ["kubectl", "--kubeconfig", str(tmp_path / "config"), "config", *words]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    kubectl("set-context", "lab", "--cluster=lab")
    windrow("kubeconfig", "orchard", "--merge", "--file", "config", "--set-current")
    kubectl("set-context", "lab", "--user=me")  # writes all anew
    again = windrow("kubeconfig", "orchard", "--merge", "--file", "config")

    assert again.code == exit_codes.OK
    assert sorted(kubectl("get-contexts", "-o", "name").split()) == ["lab", "orchard"]
    assert kubectl("current-context") == "orchard\n"
    assert "https://10.0.0.1:6443" in kubectl("view", "--minify")
