"""What is built of a checkout, installed where there is no checkout: a wheel and an sdist.

One wheel and one environment serve all tests: a copy of the source is a repository of one commit, tagged v9.8.7.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import time
import zipfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.e2e.processes import ROOT, needs_kubectl

UV = Path(sys.executable).with_name("uv")
PACKED = ("src", "docs", "deploy", "requirements")
TAG, VERSION = "v9.8.7", "9.8.7"
PAGE = ROOT / "docs" / "tutorial" / "first-cluster.md"
# The page's machines boot ten times as fast as real ones.
SPEED = "60"

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(240),
    pytest.mark.skipif(not (ROOT / ".git").exists(), reason="this is no checkout: there is nothing to build"),
]


@dataclass(frozen=True)
class Built:
    tree: Path
    commit: str
    wheel: Path


@dataclass(frozen=True)
class Installed:
    """An environment with the wheel and what it depends on, and an empty directory to work in."""

    programs: Path
    folder: Path

    @property
    def env(self) -> Mapping[str, str]:
        path = f"{self.programs}{os.pathsep}/usr/local/bin{os.pathsep}/usr/bin{os.pathsep}/bin"
        return {"PATH": path, "HOME": str(self.folder), "COLUMNS": "80", "LANG": "C.UTF-8"}

    def run(self, *command: str, within: float = 120) -> str:
        done = subprocess.run(
            command, cwd=self.folder, env=self.env, capture_output=True, text=True, timeout=within
        )
        assert done.returncode == 0, f"{command}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def start(self, command: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
        with log.open("ab") as out:
            return subprocess.Popen(command, cwd=self.folder, env=self.env, stdout=out, stderr=out)


def copy_source(target: Path) -> None:
    """What git knows of the source, as it is in the work tree."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    for name in filter(None, listed.stdout.decode().split("\0")):
        top, _, inner = name.partition("/")
        if (not inner or top in PACKED) and (ROOT / name).is_file():
            place = target / name
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, place)


def uv(*arguments: str, cwd: Path, umask: int = 0o022, env: Mapping[str, str] | None = None) -> None:
    """Run uv, without the network where its cache has all, which is so where `make setup` ran."""
    settings = {**os.environ, "UV_LINK_MODE": "copy", **(env or {})}
    settings.pop("SOURCE_DATE_EPOCH", None)
    for offline in ("--offline", "--no-progress"):
        done = subprocess.run(
            [str(UV), "--quiet", offline, *arguments],
            cwd=cwd,
            env=settings,
            umask=umask,
            capture_output=True,
            text=True,
        )
        if done.returncode == 0:
            return
    raise AssertionError(f"uv {arguments}: {done.returncode}\n{done.stdout}\n{done.stderr}")


def build(tree: Path, out: Path, *what: str, umask: int = 0o022) -> None:
    arguments = ("--no-build-isolation", "--python", sys.executable, "--out-dir", str(out))
    uv("build", *what, *arguments, str(tree), cwd=tree, umask=umask)


def git(tree: Path, *words: str) -> str:
    who = (
        "-c",
        "user.name=a",
        "-c",
        "user.email=a@b",
        "-c",
        "tag.gpgSign=false",
        "-c",
        "commit.gpgSign=false",
    )
    done = subprocess.run(["git", *who, *words], cwd=tree, check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    tree = tmp_path_factory.mktemp("source")
    copy_source(tree)
    git(tree, "init", "--quiet")
    git(tree, "add", "--all", "--force")
    git(tree, "commit", "--quiet", "--message", "all")
    git(tree, "tag", TAG)
    out = tmp_path_factory.mktemp("dist")
    build(tree, out, "--wheel")
    [wheel] = out.glob("*.whl")
    return Built(tree, git(tree, "rev-parse", "HEAD"), wheel)


@pytest.fixture(scope="module")
def programs(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of the programs of a fresh environment with only the wheel."""
    place = tmp_path_factory.mktemp("environment") / "venv"
    uv("venv", "--python", sys.executable, str(place), cwd=place.parent)
    constraints = ("--constraint", str(ROOT / "requirements" / "run.txt"))
    python = str(place / "bin" / "python")
    uv("pip", "install", "--python", python, *constraints, str(built.wheel), cwd=place.parent)
    return place / "bin"


@pytest.fixture
def installed(programs: Path, tmp_path: Path) -> Installed:
    return Installed(programs, tmp_path)


def test_two_builds_of_a_commit_are_equal_to_the_byte(built: Built, tmp_path: Path):
    """The second from the sdist, in another directory, by a user with another umask, after an earlier build."""
    copy, out = tmp_path / "elsewhere", tmp_path / "out"
    shutil.copytree(built.tree, copy, ignore=shutil.ignore_patterns("*.egg-info"))
    (copy / "build" / "lib" / "windrow").mkdir(parents=True)
    (copy / "build" / "lib" / "windrow" / "gone.py").write_text("")

    build(copy, out, umask=0o077)

    [again] = out.glob("*.whl")
    assert again.name == built.wheel.name == f"windrow-{VERSION}-py3-none-any.whl"
    names = [sorted(zipfile.ZipFile(path).namelist()) for path in (built.wheel, again)]
    assert names[0] == names[1]
    assert hashlib.sha256(again.read_bytes()).digest() == hashlib.sha256(built.wheel.read_bytes()).digest()
    [packed] = out.glob("*.tar.gz")
    with tarfile.open(packed) as sdist:
        assert f"windrow-{VERSION}/deploy/systemd/windrow.service" in sdist.getnames()
    assert git(built.tree, "status", "--porcelain") == "", "the build changed the checkout"


def test_a_wheel_holds_the_package_and_every_page_and_nothing_else(built: Built):
    names = set(zipfile.ZipFile(built.wheel).namelist())
    known = git(ROOT, "ls-files", "--cached", "--others", "--exclude-standard", "src", "docs").splitlines()
    existing = [name for name in known if (ROOT / name).is_file()]

    sources = {name.removeprefix("src/") for name in existing if name.startswith("src/")}
    pages = {f"windrow/{name}" for name in existing if name.startswith("docs/")}
    inside = {name for name in names if not name.startswith(f"windrow-{VERSION}.dist-info/")}
    assert inside == sources | pages


def test_the_version_is_that_of_the_tag_everywhere(built: Built, installed: Installed):
    said = json.loads(installed.run("windrow", "version", "-o", "json"))
    by_python = installed.run("python", "-m", "windrow", "version")
    distribution = "from importlib.metadata import version; print(version('windrow'))"

    assert (said["windrow"], said["commit"], said["dirty"]) == (VERSION, built.commit, False)
    assert by_python == installed.run("windrow", "--version")
    assert by_python.splitlines()[0] == f"windrow {VERSION}"
    assert installed.run("python", "-c", distribution).strip() == VERSION
    assert installed.run("harvester-cloud-provider", "--version").split()[-1] == f"v{VERSION}"


def test_the_pages_that_help_names_are_in_the_wheel(installed: Installed):
    texts = [installed.run("windrow", "--help")]
    commands = re.findall(r"^  ([a-z]+) +[a-z]", texts[0], re.M)
    script = (
        "import io,sys,datetime,pathlib\nfrom windrow.cli import main\nfrom windrow.cli.context import CliContext\n"
        "o=sys.stdout\nc=CliContext({},pathlib.Path(),io.StringIO(),o,o,datetime.datetime.now)\n"
        "for w in main.COMMANDS: main.run([w,'--help'],c)"
    )
    texts.append(installed.run("python", "-c", script))
    named = set(re.findall(r"\bdocs/[\w/-]+\.md|(?<=windrow docs )[a-z][\w/.-]+", "\n".join(texts)))

    assert "demo" in commands
    assert {"first-cluster", "demo"} <= named
    for name in named:
        assert installed.run("windrow", "docs", name).startswith(("# ", "<!--"))


def test_uv_installs_it_as_a_tool(built: Built, tmp_path: Path):
    places = {"UV_TOOL_DIR": str(tmp_path / "tools"), "UV_TOOL_BIN_DIR": str(tmp_path / "bin")}
    constraints = ("--constraints", str(ROOT / "requirements" / "run.txt"))

    uv(
        "tool",
        "install",
        "--python",
        sys.executable,
        *constraints,
        str(built.wheel),
        cwd=tmp_path,
        env=places,
    )

    program = tmp_path / "bin" / "windrow"
    said = subprocess.run(
        [program, "version"], cwd=tmp_path, env={}, check=True, capture_output=True, text=True
    )
    assert said.stdout.splitlines()[0] == f"windrow {VERSION}"


def test_the_demo_runs_from_the_wheel(installed: Installed):
    told = installed.run(
        "windrow", "demo", "--plain", "--time-scale", SPEED, "--report", "r.json", within=200
    )

    checks = json.loads((installed.folder / "r.json").read_text())["checks"]
    assert [check for check in checks if not check["ok"]] == [], told
    assert {"cluster-ready", "upgraded", "restored", "nothing-left"} <= {check["name"] for check in checks}


# The first page, command by command


def commands_of(page: Path) -> list[str]:
    """The commands of the page, in order, without those that set a checkout up."""
    blocks = re.findall(r"^```console\n(.*?)^```", page.read_text(), re.M | re.S)
    lines = [line[2:] for block in blocks for line in block.splitlines() if line.startswith("$ ")]
    return [line for line in lines if not line.startswith(("make ", "export "))]


class Reader:
    """Types what the page says, in a directory with the page's manifest."""

    def __init__(self, installed: Installed, stack: ExitStack) -> None:
        self._installed, self._stack = installed, stack
        self.typed: list[str] = []
        [manifest] = re.findall(r"^```yaml\n(.*?)^```", PAGE.read_text(), re.M | re.S)
        (installed.folder / "orchard.yaml").write_text(manifest)

    def type(self, line: str) -> str:
        """What the command printed; "" for one that goes on in a terminal of its own."""
        line = line.replace("--time-scale 10", f"--time-scale {SPEED}")
        line = line.replace("NAME-OF-THE-WORKER", self._worker).replace("NAME-OF-A-MACHINE", self._worker)
        self.typed.append(line)
        words = line.split()
        match words:
            case ["windrow", "emulate", "--preload", *_]:
                return self._leave_running(words, ".windrow/credentials.yaml")
            case ["windrow", "serve"]:
                return self._leave_running(words, ".windrow/manager.yaml")
            case ["windrow", "status", "orchard", "--watch"]:
                return self._watch_until_ready(words)
            case ["windrow", "delete", "orchard"]:
                return self._installed.run(*words, "--yes")
            case _:
                return self._installed.run(*words)

    @property
    def _worker(self) -> str:
        if not self.typed:
            return ""
        found = [name for name in self.machines() if "-workers-" in name]
        return found[0] if found else ""

    def machines(self) -> list[str]:
        kubeconfig = self._installed.folder / ".windrow" / "harvester.yaml"
        if not kubeconfig.exists():
            return []
        listed = self._installed.run(
            "kubectl", "--kubeconfig", str(kubeconfig), "get", "vm", "-n", "default", "-o", "name"
        )
        return [line.partition("/")[2] for line in listed.splitlines()]

    def _leave_running(self, words: Sequence[str], until: str) -> str:
        log = self._installed.folder / f"{words[1]}.log"
        process = self._installed.start(words, log)
        self._stack.callback(stop, process)
        wait_for(lambda: (self._installed.folder / until).exists() or process.poll() is not None, log)
        assert process.poll() is None, log.read_text()
        return ""

    def _watch_until_ready(self, words: Sequence[str]) -> str:
        log = self._installed.folder / "watch.log"
        process = self._installed.start(words, log)
        try:
            wait_for(self._is_whole, log)
        finally:
            stop(process)
        return log.read_text()

    def _is_whole(self) -> bool:
        """Whether both machines run, and Harvester has the VMs of these and no others."""
        asked = ("kubectl", "--kubeconfig", ".windrow/manager.yaml", "get", "machines", "-A", "-o", "json")
        machines = json.loads(self._installed.run(*asked))["items"]
        return (
            len(machines) == 2
            and all(raw.get("status", {}).get("phase") == "Ready" for raw in machines)
            and set(self.machines()) == {raw["metadata"]["name"] for raw in machines}
        )


def stop(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
    process.wait(60)


def wait_for(holds: Callable[[], bool], log: Path) -> None:
    deadline = time.monotonic() + 110
    while not holds():
        assert time.monotonic() < deadline, log.read_text()[-4000:]
        time.sleep(0.3)


@needs_kubectl
def test_the_first_page_of_the_documentation_works_with_only_the_wheel(installed: Installed):
    commands = commands_of(PAGE)
    with ExitStack() as stack:
        reader = Reader(installed, stack)
        answers = [(command, reader.type(command)) for command in commands]

    said = dict(answers)
    nodes = next(answer for command, answer in answers if command.endswith("get nodes -o wide"))
    assert len(re.findall(r" Ready ", nodes)) == 2
    assert "workers: 1 → 2" in said["windrow scale orchard workers=2 --wait"]
    assert said["windrow emulate console default/NAME-OF-A-MACHINE"]
    # kubectl says on standard error that nothing is found.
    assert answers[-1] == ("kubectl --kubeconfig .windrow/harvester.yaml get vm,pvc -A", "")
    assert not any("NAME-OF" in line for line in reader.typed)
