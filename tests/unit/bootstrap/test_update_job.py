"""The Job that changes a machine in place: the objects, and the script as a real shell runs it."""

from __future__ import annotations

import subprocess
from base64 import b64decode
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from windrow.bootstrap import k3s, rke2
from windrow.bootstrap.cloud_config import File
from windrow.bootstrap.install.unit import SITE_ENVIRONMENT, STATE
from windrow.bootstrap.install.update_job import (
    FOLLOWED,
    MAX_SECRET,
    PENDING,
    WORKSPACE,
    UpdateJob,
    choose_image,
    render_files_secret,
    render_job,
    render_script,
    require_fitting,
)
from windrow.bootstrap.spec import InvalidBootstrapSpec

OLD, NEW = "v1.34.7+rke2r1", "v1.35.4+rke2r1"
SECRET_TEXT = "token: very-secret"


def a_job(*files: File, **rest: object) -> UpdateJob:
    job = UpdateJob(
        name="windrow-update-1",
        node="prod-workers-1",
        machine_uid="uid-1",
        version=NEW,
        service="rke2-agent.service",
        installer=rke2.INSTALLER,
        files=files,
        applied_directory="/var/lib/rancher/rke2/server/manifests/rancher",
    )
    return replace(job, **rest)  # type: ignore[arg-type]


# -- objects -----------------------------------------------------------------------------------------------------


def test_the_pod_is_bound_to_its_node_by_name_and_tolerates_everything() -> None:
    pod = render_job(a_job())["spec"]["template"]["spec"]

    assert pod["nodeName"] == "prod-workers-1"
    assert pod["tolerations"] == [{"operator": "Exists"}]
    assert pod["hostPID"] is True
    assert pod["restartPolicy"] == "Never"


def test_the_container_has_the_shell_of_the_machine() -> None:
    pod = render_job(a_job())["spec"]["template"]["spec"]
    (container,) = pod["containers"]

    paths = {volume["name"]: volume["hostPath"]["path"] for volume in pod["volumes"] if "hostPath" in volume}
    mounted = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert {mounted[name]: path for name, path in paths.items()} == {
        "/host": "/",
        "/usr": "/usr",
        "/bin": "/bin",
        "/lib": "/lib",
        "/lib64": "/lib64",
    }
    assert container["securityContext"]["privileged"] is True


def test_what_is_secret_is_in_the_secret_alone() -> None:
    job = a_job(File("/etc/a", SECRET_TEXT))

    secret = render_files_secret(job)

    assert SECRET_TEXT not in str(render_job(job))
    assert b64decode(secret["data"]["file-000"]).decode() == SECRET_TEXT
    assert secret["metadata"]["name"] == job.name


def test_files_that_fit_into_no_secret_are_refused() -> None:
    require_fitting(a_job(File("/etc/a", "x" * MAX_SECRET)))

    with pytest.raises(InvalidBootstrapSpec, match=f"have {MAX_SECRET + 1} bytes together"):
        require_fitting(a_job(File("/etc/a", "x" * MAX_SECRET), File("/etc/b", "y")))


@pytest.mark.parametrize(
    ("names", "registry", "given", "chosen"),
    [
        ([], "", "", "rancher/mirrored-pause:3.6"),
        ([], "registry.site", "", "registry.site/rancher/mirrored-pause:3.6"),
        (["docker.io/rancher/mirrored-pause@sha256:1", "docker.io/rancher/mirrored-pause:3.9"], "r", "", ""),
        (["x", "registry.site:5000/rancher/mirrored-pause:3.10"], "registry.site:5000", "", ""),
        (["evil.example/x/pause:1"], "", "", "rancher/mirrored-pause:3.6"),
        (["evil.example/rancher/mirrored-pause:1"], "r", "", "r/rancher/mirrored-pause:3.6"),
        (["docker.io/rancher/mirrored-pause:evil"], "", "", "rancher/mirrored-pause:3.6"),
        (["site/unpause:1"], "", "", "rancher/mirrored-pause:3.6"),
        (["registry.k8s.io/pause:3.10"], "", "site/tools:1", "site/tools:1"),
    ],
)
def test_the_image_is_the_users_or_the_sandbox_image_that_the_node_has_or_that_of_the_distribution(
    names: list[str], registry: str, given: str, chosen: str
) -> None:
    node = {"status": {"images": [{"names": ["site/app:2"]}, {"names": names}]}}

    assert choose_image(node, registry, given) == (chosen or names[1])


# -- the script, as a shell runs it ------------------------------------------------------------------------------


@dataclass
class Host:
    """A machine in a folder: systemctl notes what it is told, and installs what the environment file names."""

    root: Path
    installs: bool = True

    def __post_init__(self) -> None:
        for name in ("bin", "run", "state", "etc"):
            (self.root / name).mkdir()
        self.write_installed(OLD)
        environment = self.root / "etc/rke2.env"
        install = f"sed -n s/^INSTALL_RKE2_VERSION=//p {environment} > {self.root}/state/installed"
        self.program(
            "systemctl",
            f"""echo "$@" >> {self.root}/log
case "$1 $2" in
  "show -p") cat {self.root}/failures 2>/dev/null || true;;
  "restart --no-block") {install if self.installs else f"echo 3 > {self.root}/failures"};;
esac""",
        )
        self.program("journalctl", "echo curl: 404")
        self.program("sleep", "true")

    def program(self, name: str, script: str) -> None:
        path = self.root / "bin" / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    def write_installed(self, version: str) -> None:
        (self.root / "state/installed").write_text(f"{version}\n")

    def path(self, name: str) -> str:
        return str(self.root / "etc" / name)

    def files(self, version: str, config: str = "a: 1") -> list[File]:
        return [
            File(rke2.INSTALLER.environment_file, f"INSTALL_RKE2_VERSION={version}\n", "0644"),
            File(self.path("conf/50.yaml"), config),
        ]

    def run(self, job: UpdateJob) -> subprocess.CompletedProcess[str]:
        work = self.root / "run/w"
        work.mkdir(exist_ok=True)
        for number, file in enumerate(job.files):
            (work / f"file-{number:03}").write_text(file.content)
        script = render_script(job)
        for path, own in ((WORKSPACE, work), (STATE, self.root / "state/installed")):
            script = script.replace(path, str(own))
        script = script.replace(PENDING, str(self.root / "state/pending"))
        script = script.replace("mkdir -p /var/lib/windrow\n", "")
        script = script.replace(rke2.INSTALLER.environment_file, self.path("rke2.env"))
        environment = {"PATH": f"{self.root}/bin:/usr/bin:/bin"}
        return subprocess.run(
            ["/bin/sh", "-c", script],
            env=environment,
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
        )

    def told(self) -> list[str]:
        log = self.root / "log"
        lines = log.read_text().splitlines() if log.exists() else []
        log.unlink(missing_ok=True)
        return [line for line in lines if line.startswith("restart")]


def the_job(host: Host, *files: File, **rest: object) -> UpdateJob:
    installer = replace(rke2.INSTALLER)
    return a_job(*files, installer=installer, applied_directory=host.path("manifests"), **rest)


def preflight(
    host: Host,
    tmp_path: Path,
    *,
    free: str = "9999999",
    pull: str = "true",
    registry: str = "",
    only_asks: bool = False,
) -> Any:
    """The Job of another version on a host with so much space, whose images are pulled so."""
    data = tmp_path / "data"
    (data / "bin").mkdir(parents=True, exist_ok=True)
    (data / "agent/images").mkdir(parents=True, exist_ok=True)
    crictl = data / "bin/crictl"
    crictl.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/pulled\n{pull}\n')
    crictl.chmod(0o755)
    host.program("df", f"printf 'Avail\\n%s\\n' '{free}'")
    job = the_job(host, *host.files(NEW), data_directory=str(data), registry=registry)
    return host.run(replace(job, only_asks=only_asks))


def test_a_job_that_only_asks_changes_nothing_where_the_machine_can_take_the_release(tmp_path: Path) -> None:
    host = Host(tmp_path)
    done = preflight(host, tmp_path, only_asks=True)

    assert done.returncode == 0, done.stderr
    assert (tmp_path / "pulled").exists()
    assert not Path(host.path("conf/50.yaml")).exists()
    assert host.told() == []


@pytest.mark.parametrize("free", ["  3145728", "unknown", ""])
def test_a_disk_with_enough_or_unknown_space_takes_another_version(tmp_path: Path, free: str) -> None:
    done = preflight(Host(tmp_path), tmp_path, free=free)
    assert done.returncode == 0, done.stderr


def test_a_disk_without_space_is_said_before_anything_is_changed(tmp_path: Path) -> None:
    host = Host(tmp_path)
    failed = preflight(host, tmp_path, free="  3145727")

    assert failed.returncode == 1
    assert "has   3145727 KiB free, and v1.35.4+rke2r1 needs 3145728; nothing was changed" in failed.stderr
    assert not Path(host.path("conf/50.yaml")).exists()
    assert host.told() == []
    assert not (tmp_path / "pulled").exists()


def test_an_image_that_cannot_be_pulled_is_said_before_anything_is_changed(tmp_path: Path) -> None:
    host = Host(tmp_path)
    refused = "echo first; echo second; echo 'no such host' >&2; exit 1"
    failed = preflight(host, tmp_path, pull=refused, registry="registry.site:5000")

    image = "registry.site:5000/rancher/rke2-runtime:v1.35.4-rke2r1"
    assert (
        tmp_path / "pulled"
    ).read_text() == f"--config {tmp_path}/data/agent/etc/crictl.yaml pull {image}\n"
    assert failed.returncode == 1
    assert failed.stderr.startswith(
        f"second\nno such host\n{image} cannot be pulled here; nothing was changed"
    )
    assert not Path(host.path("conf/50.yaml")).exists()
    assert host.told() == []


@pytest.mark.parametrize("pull", ["true", "exit 124"])
def test_an_image_that_is_pulled_or_takes_long_holds_nothing(tmp_path: Path, pull: str) -> None:
    assert preflight(Host(tmp_path), tmp_path, pull=pull).returncode == 0


def test_the_registry_of_k3s_is_asked_with_the_image_that_every_machine_has() -> None:
    script = render_script(a_job(installer=k3s.INSTALLER, image="site:5000/rancher/mirrored-pause:3.6"))

    pull = "/usr/local/bin/k3s crictl --config /var/lib/rancher/k3s/agent/etc/crictl.yaml pull site:5000/rancher/mirrored-pause:3.6"
    assert pull in script
    assert "[ -x /usr/local/bin/k3s ]" in script
    assert "INSTALL_K3S_ARTIFACT_PATH" in script


def test_archives_of_images_are_not_second_guessed(tmp_path: Path) -> None:
    host = Host(tmp_path)
    (tmp_path / "data/agent/images").mkdir(parents=True)
    (tmp_path / "data/agent/images/rke2-images.linux-amd64.tar.zst").write_text("")

    assert preflight(host, tmp_path, pull="exit 1").returncode == 0
    assert not (tmp_path / "pulled").exists()


def test_a_site_with_a_folder_of_releases_is_not_asked_for_images(tmp_path: Path) -> None:
    host = Host(tmp_path)
    site = tmp_path / "site.env"
    site.write_text("INSTALL_RKE2_ARTIFACT_PATH=/srv/rke2\n")
    job = the_job(host, *host.files(NEW))
    assert f"grep -qs '^INSTALL_RKE2_ARTIFACT_PATH=.' {SITE_ENVIRONMENT}" in render_script(job)


def test_a_restart_or_another_configuration_asks_for_no_space(tmp_path: Path) -> None:
    host = Host(tmp_path)
    host.program("df", "printf '1\\n'")
    assert host.run(the_job(host, *host.files(OLD), version=OLD)).returncode == 0
    assert "df -k" not in render_script(the_job(host, request="1"))
    assert "df -k" not in render_script(the_job(host, restarts=False))


INSTALL = "restart --no-block windrow-install.service"
RESTART = "restart rke2-agent.service"


def test_files_that_are_as_they_should_be_restart_nothing(tmp_path: Path) -> None:
    host = Host(tmp_path)
    host.run(the_job(host, *host.files(OLD), version=OLD))
    host.told()

    assert host.run(the_job(host, *host.files(OLD), version=OLD)).returncode == 0
    assert host.told() == []


def test_another_configuration_restarts_the_service_once(tmp_path: Path) -> None:
    host = Host(tmp_path)

    assert host.run(the_job(host, *host.files(OLD, "a: 2"), version=OLD)).returncode == 0

    assert host.told() == [RESTART]
    assert Path(host.path("conf/50.yaml")).read_text() == "a: 2"
    assert Path(host.path("conf/50.yaml")).stat().st_mode & 0o777 == 0o600


def test_a_script_that_was_cut_off_before_the_restart_restarts_the_next_time(tmp_path: Path) -> None:
    host = Host(tmp_path)
    host.run(the_job(host, *host.files(OLD, "a: 2"), version=OLD))
    host.told()
    (tmp_path / "state/pending").touch()  # the files are written, the service was not restarted

    host.run(the_job(host, *host.files(OLD, "a: 2"), version=OLD))

    assert host.told() == [RESTART]


def test_manifests_which_the_server_applies_by_itself_restart_nothing(tmp_path: Path) -> None:
    host = Host(tmp_path)

    host.run(the_job(host, File(host.path("manifests/addons.yaml"), "kind: ConfigMap"), version=OLD))

    assert host.told() == []
    assert Path(host.path("manifests/addons.yaml")).exists()


def test_another_version_is_installed_by_the_unit_which_restarts_the_service(tmp_path: Path) -> None:
    host = Host(tmp_path)

    assert host.run(the_job(host, *host.files(NEW))).returncode == 0

    assert host.told() == [INSTALL]
    assert (tmp_path / "state/installed").read_text().strip() == NEW


def test_a_version_that_cannot_be_installed_is_put_back_and_said_with_the_last_lines(tmp_path: Path) -> None:
    host = Host(tmp_path, installs=False)
    Path(host.path("rke2.env")).write_text(f"INSTALL_RKE2_VERSION={OLD}\n")

    done = host.run(the_job(host, *host.files(NEW)))

    assert done.returncode == 1
    assert "curl: 404" in done.stdout
    assert f"{NEW} was not installed; {OLD} runs on" in done.stderr
    assert Path(host.path("rke2.env")).read_text() == f"INSTALL_RKE2_VERSION={OLD}\n"
    assert host.told() == [INSTALL, INSTALL]


def test_without_restarts_files_are_written_and_no_service_is_touched(tmp_path: Path) -> None:
    host = Host(tmp_path)

    host.run(the_job(host, *host.files(NEW, "a: 3"), restarts=False))

    assert host.told() == []
    assert Path(host.path("conf/50.yaml")).read_text() == "a: 3"


@pytest.mark.parametrize("distribution", [rke2, k3s])
def test_the_version_is_named_as_the_distribution_writes_it(distribution: object) -> None:
    script = render_script(a_job(installer=distribution.INSTALLER))  # type: ignore[attr-defined]

    assert f'if [ "$installed" != {NEW} ]' in script
    assert distribution.INSTALLER.environment_file in script  # type: ignore[attr-defined]


def with_keys(host: Host, fails: bool = False, **rest: object) -> UpdateJob:
    """A job by which certificates get new keys; the program notes what it is told as systemctl does."""
    host.program("rke2", f'echo "rke2 $*" >> {host.root}/log{"; exit 1" if fails else ""}')
    return the_job(host, version=OLD, request="certificates-1-2", new_keys=True, **rest)


def everything_told(host: Host) -> list[str]:
    log = (host.root / "log").read_text().splitlines()
    return [line for line in log if not line.startswith(("daemon-reload", "show", "is-active"))]


def run_with_followed(host: Host, job: UpdateJob) -> subprocess.CompletedProcess[str]:
    original = render_script(job).replace(FOLLOWED, str(host.root / "state/followed"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(f"{__name__}.render_script", lambda _: original)
        return host.run(job)


def test_new_keys_are_made_while_the_service_is_stopped_and_once(tmp_path: Path) -> None:
    host = Host(tmp_path)
    job = with_keys(host, services=("etcd", "kubelet"), data_directory="/data/my rke2")

    assert run_with_followed(host, job).returncode == 0
    assert everything_told(host) == [
        "stop rke2-agent.service",
        "rke2 certificate rotate --service=etcd,kubelet --data-dir=/data/my rke2",
        RESTART,
    ]
    (host.root / "log").unlink()
    assert run_with_followed(host, job).returncode == 0
    assert everything_told(host) == []


def test_a_service_that_gets_no_new_keys_is_started_with_its_own(tmp_path: Path) -> None:
    host = Host(tmp_path)
    job = with_keys(host, fails=True)

    answer = run_with_followed(host, job)

    assert answer.returncode == 1
    assert "runs on with its own" in answer.stderr
    assert everything_told(host) == [
        "stop rke2-agent.service",
        "rke2 certificate rotate",
        "start --no-block rke2-agent.service",
    ]
    assert not (host.root / "state/pending").exists()
    assert not (host.root / "state/followed").exists()
