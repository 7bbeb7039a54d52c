"""Build the images of Windrow's programs without a registry of images: `make image`.

    build.py              write dist/images/NAME-ARCH.tar, its list of contents NAME-ARCH.spdx.json, and images.json with all digests
    build.py --tag TAG    name them so, and not by their version
    build.py --architecture arm64
                          of another kind of computer, which this one emulates (binfmt_misc); the digests go to images-arm64.json
    build.py --refresh    the same, on Debian's packages of today; else those of the last build on this computer are used again

An image is Debian's essential packages with its Python, then Windrow's wheel with the locked dependencies, then the list of
contents. Debian's packages come by mmdebstrap from where this computer has them. Nothing in an image depends on the day, the user or a
folder's name: the same commit on the same packages gives the same digests. The base lies below $XDG_CACHE_HOME/windrow/image.
docs/how-to/build-the-images.md tells how they are used.
Exit code 3: this computer has not got what a build needs, and the text says what; 1: the build failed.
"""

from __future__ import annotations

import argparse
import configparser
import fcntl
import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from scripts.image.layout import (  # noqa: E402
    Entry,
    Layer,
    Settings,
    compress,
    digest_of,
    write_archive,
    write_tape,
)
from scripts.image.sbom import Package, parse_dpkg_status, parse_metadata, render_sbom  # noqa: E402

LOCK = ROOT / "requirements" / "run.txt"
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
# What wheels may expect of an image's C library, as uv names it. Debian's is younger.
PLATFORMS = {"amd64": "x86_64-manylinux_2_28", "arm64": "aarch64-manylinux_2_28"}
# Debian's release by the Python of this build, which compiles the modules: another one would refuse what it has written.
SUITES = {(3, 11): "bookworm", (3, 13): "trixie"}
# Files of the base are dated so; those of a package that is younger, too.
BASE_EPOCH = 1_735_689_600
USER_ID = 65532
PLACE = "/opt/windrow"
STATE = "/var/lib/windrow"
# What a container never reads. Licenses stay.
EXCLUDED = ("/usr/share/man/*", "/usr/share/locale/*", "/usr/share/info/*", "/usr/share/doc/*")
KEPT = ("/usr/share/doc/*/copyright",)


class CannotBuild(Exception):
    """This computer has not got what a build needs."""


@dataclass(frozen=True)
class Image:
    """One image. `packages` are Debian's, beside the essential ones."""

    name: str
    program: str
    description: str
    packages: tuple[str, ...]
    arguments: tuple[str, ...] = ()
    user: str = f"{USER_ID}:{USER_ID}"


# The C++ library is what wheels expect of a system; google-re2 does.
RUNTIME = ("ca-certificates", "libstdc++6", "python3")
IMAGES = (
    Image(
        "windrow",
        "windrow",
        "Windrow's cluster manager for Harvester",
        RUNTIME,
        ("serve", "--state-dir", STATE, "--bind", "0.0.0.0", "--port", "6443"),
    ),
    Image(
        "harvester-cloud-provider",
        "harvester-cloud-provider",
        "Windrow's cloud provider for Kubernetes clusters on Harvester",
        RUNTIME,
    ),
    # The programs that it starts on a node. It mounts there, so its user is root; the chart gives the controller another.
    Image(
        "harvester-csi-driver",
        "harvester-csi-driver",
        "Windrow's CSI driver for Kubernetes clusters on Harvester",
        (*RUNTIME, "e2fsprogs", "mount", "nfs-common", "util-linux", "xfsprogs"),
        user="0:0",
    ),
)


class Failed(Exception):
    """A program of the build failed; the message ends with what it printed."""


def run(*command: str | Path, env: Mapping[str, str] | None = None) -> None:
    """Run a program; what it printed is shown only when it fails. Raises Failed."""
    settings = {**os.environ, **(env or {})}
    done = subprocess.run(list(map(str, command)), env=settings, capture_output=True, text=True)
    if done.returncode != 0:
        raise Failed(f"{Path(command[0]).name} failed:\n{done.stdout[-4000:]}{done.stderr[-4000:]}")


def own_architecture() -> str:
    return ARCHITECTURES.get(platform.machine(), "")


def require_tools(wanted: str) -> tuple[str, str]:
    """Architecture and suite of the images, `wanted` or else of this computer's. Raises CannotBuild."""
    architecture = wanted or own_architecture()
    suite = SUITES.get(sys.version_info[:2])
    if not architecture or platform.system() != "Linux":
        raise CannotBuild("images are built on Linux, for amd64 or arm64")
    if suite is None:
        wanted = " or ".join(f"{major}.{minor}" for major, minor in SUITES)
        raise CannotBuild(
            f"images are built by Python {wanted}, as Debian has it; this is {platform.python_version()}"
        )
    if shutil.which("mmdebstrap") is None:
        raise CannotBuild("mmdebstrap is not installed (Debian: mmdebstrap)")
    return architecture, suite


def cache_folder(env: Mapping[str, str]) -> Path:
    home = env.get("XDG_CACHE_HOME") or str(Path(env.get("HOME") or "/tmp", ".cache"))
    return Path(home) / "windrow" / "image"


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Two builds at once wait for each other."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


# The base


@dataclass(frozen=True)
class Base:
    layer: Layer
    packages: tuple[Package, ...]


def make_base(packages: Sequence[str], architecture: str, suite: str, cache: Path, refresh: bool) -> Base:
    """Debian's essential packages and `packages`, of the cache where it has them. Raises CannotBuild."""
    command = base_command(packages, architecture, suite)
    key = hashlib.sha256("\n".join([*command, str(BASE_EPOCH)]).encode()).hexdigest()[:16]
    tape, packed = cache / f"{key}.tar", cache / f"{key}.tar.gz"
    if refresh or not tape.exists():
        print(f"Debian {suite}: {', '.join(packages)} …", flush=True)
        partial = tape.with_name(f"{key}.partial.tar")
        try:
            run(*command, partial, env={"SOURCE_DATE_EPOCH": str(BASE_EPOCH)})
        except Failed as error:
            partial.unlink(missing_ok=True)
            raise CannotBuild(f"Debian's packages are not to be had; {error}") from error
        packed.unlink(missing_ok=True)
        partial.replace(tape)
    layer = _packed(tape, packed)
    with tarfile.open(tape) as opened:
        status = opened.extractfile("./var/lib/dpkg/status")
        assert status is not None
        return Base(layer, tuple(parse_dpkg_status(status.read().decode(), suite)))


def _packed(tape: Path, packed: Path) -> Layer:
    """The layer of the base, compressed once: half a minute of a busy computer."""
    known = packed.with_suffix(".json")
    if packed.exists() and known.exists():
        return Layer(packed, **json.loads(known.read_text()))
    partial = packed.with_suffix(".partial")
    layer = compress(tape, partial)
    said = {"digest": layer.digest, "diff_id": layer.diff_id, "size": layer.size}
    known.write_text(json.dumps(said))
    partial.replace(packed)
    return Layer(packed, **said)


def base_command(packages: Sequence[str], architecture: str, suite: str) -> list[str]:
    mode = "root" if os.geteuid() == 0 else "unshare"
    options = [f"--dpkgopt=path-exclude={pattern}" for pattern in EXCLUDED]
    options += [f"--dpkgopt=path-include={pattern}" for pattern in KEPT]
    return [
        "mmdebstrap",
        "--quiet",
        "--variant=essential",
        f"--mode={mode}",
        f"--architectures={architecture}",
        # A container gets devices of its own.
        "--skip=output/dev",
        f"--include={','.join(packages)}",
        *options,
        suite,
    ]


# Windrow


def _beside(program: str) -> Path:
    return Path(sys.executable).with_name(program)


def install(wheel: Path, library: Path, architecture: str) -> None:
    """The wheel and its locked dependencies as files below `library`, byte-compiled as if they lay in the image."""
    uv = (_beside("uv"), "pip", "install", "--quiet", "--python", sys.executable, "--target", library)
    version = ".".join(map(str, sys.version_info[:2]))
    uv = (*uv, "--python-version", version, "--python-platform", PLATFORMS[architecture])
    locked_packages = ("--require-hashes", "--only-binary", ":all:", "-r", LOCK)
    run(*uv, *locked_packages)
    run(*uv, "--no-deps", wheel)
    shutil.rmtree(library / "bin", ignore_errors=True)
    # What tells of this computer.
    for pattern in ("direct_url.json", "uv_cache.json", "REQUESTED", "INSTALLER", "RECORD"):
        for path in library.glob(f"*.dist-info/{pattern}"):
            path.unlink()
    (library / ".lock").unlink(missing_ok=True)
    for path in library.rglob("__pycache__"):
        shutil.rmtree(path)
    compiler = (sys.executable, "-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash")
    run(*compiler, "-s", library, "-p", f"{PLACE}/lib", library, env={"PYTHONPYCACHEPREFIX": ""})


SCRIPT = """\
#!/usr/bin/python3 -IBu
import sys
sys.path.insert(0, "{place}/lib")
from {module} import {function}
sys.exit({function}())
"""


def scripts_of(wheel: Path) -> Mapping[str, str]:
    """The programs that the wheel installs, each with its text."""
    with zipfile.ZipFile(wheel) as archive:
        [name] = [name for name in archive.namelist() if name.endswith(".dist-info/entry_points.txt")]
        parser = configparser.ConfigParser()
        parser.read_string(archive.read(name).decode())
    found = {}
    for program, target in parser["console_scripts"].items():
        module, _, function = target.partition(":")
        found[program] = SCRIPT.format(place=PLACE, module=module.strip(), function=function.strip())
    return found


def application(wheel: Path, library: Path, epoch: int, scratch: Path) -> Layer:
    entries = [Entry(STATE, None, 0o700, USER_ID), Entry("/etc/kubernetes", None, 0o755)]
    for path in library.rglob("*"):
        if path.is_file():
            mode = 0o755 if path.stat().st_mode & 0o111 else 0o644
            entries.append(Entry(f"{PLACE}/lib/{path.relative_to(library)}", path.read_bytes(), mode))
    for program, text in scripts_of(wheel).items():
        entries.append(Entry(f"{PLACE}/bin/{program}", text.encode(), 0o755))
    tape = scratch / "application.tar"
    write_tape(entries, epoch, tape)
    return compress(tape, scratch / "application.tar.gz")


@dataclass(frozen=True)
class Stamp:
    version: str
    commit: str
    epoch: int


def read_stamp(wheel: Path) -> Stamp:
    """What the wheel says of itself."""
    import setup

    with zipfile.ZipFile(wheel) as archive:
        release = setup.read_stamp(archive.read("windrow/__init__.py").decode())
    return Stamp(release.version, release.commit, release.epoch)


# All


def tag_of(version: str) -> str:
    """A tag of an image may not have the plus sign of a development release."""
    return version.replace("+", "-")


def list_name(architecture: str) -> str:
    """The file that names the images: one for this kind of computer, which the tests run, and one for each other."""
    return "images.json" if architecture == own_architecture() else f"images-{architecture}.json"


def settings_of(image: Image, stamp: Stamp, tag: str, architecture: str) -> Settings:
    env = {"PATH": f"{PLACE}/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": STATE, "LANG": "C.UTF-8"}
    labels = {
        "org.opencontainers.image.title": image.name,
        "org.opencontainers.image.description": image.description,
        "org.opencontainers.image.licenses": "Apache-2.0",
        "org.opencontainers.image.version": stamp.version,
        "org.opencontainers.image.revision": stamp.commit,
    }
    return Settings(
        f"windrow/{image.name}",
        tag,
        (f"{PLACE}/bin/{image.program}",),
        image.arguments,
        image.user,
        env,
        STATE if image.program == "windrow" else "/",
        labels,
        architecture,
        stamp.epoch,
    )


def build_all(out: Path, tag: str, refresh: bool, wanted: str = "") -> None:
    architecture, suite = require_tools(wanted)
    cache = cache_folder(os.environ)
    out.mkdir(parents=True, exist_ok=True)
    # By which the tests of the images know them as those of the present lock file.
    digests: dict[str, object] = {"requirements": digest_of(LOCK.read_bytes())}
    with locked(cache), tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        build = (_beside("uv"), "build", "--quiet", "--wheel", "--no-build-isolation")
        run(*build, "--python", sys.executable, "--out-dir", scratch, ROOT)
        [wheel] = scratch.glob("*.whl")
        stamp = read_stamp(wheel)
        library = scratch / "library"
        install(wheel, library, architecture)
        program = application(wheel, library, stamp.epoch, scratch)
        modules = [parse_metadata(path.read_text()) for path in library.glob("*.dist-info/METADATA")]
        bases = {
            packages: make_base(packages, architecture, suite, cache, refresh)
            for packages in {image.packages: None for image in IMAGES}
        }
        for image in IMAGES:
            base = bases[image.packages]
            document = render_sbom(image.name, stamp.version, [*base.packages, *modules], stamp.epoch)
            listed = json.dumps(document, indent=1).encode()
            tape = scratch / f"{image.name}.tar"
            write_tape([Entry(f"/usr/share/doc/windrow/{image.name}.spdx.json", listed)], stamp.epoch, tape)
            layers = [base.layer, program, compress(tape, scratch / f"{image.name}.tar.gz")]
            settings = settings_of(image, stamp, tag or tag_of(stamp.version), architecture)
            archive = out / f"{image.name}-{architecture}.tar"
            digest = write_archive(settings, layers, archive)
            (out / f"{image.name}-{architecture}.spdx.json").write_bytes(listed)
            reference = f"{settings.name}:{settings.tag}"
            digests[image.name] = {"image": reference, "digest": digest, "file": archive.name}
            megabytes = sum(layer.size for layer in layers) / 1e6
            print(f"{archive}  {megabytes:.0f} MB\n  {reference}@{digest}")
    (out / list_name(architecture)).write_text(json.dumps(digests, indent=1) + "\n")


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--refresh", action="store_true")
    parser.add_argument("--tag", default="")
    parser.add_argument("--architecture", default="", choices=("", *PLATFORMS))
    parser.add_argument("--out", type=Path, default=ROOT / "dist" / "images")
    given = parser.parse_args(argv)
    try:
        build_all(given.out, given.tag, given.refresh, given.architecture)
    except CannotBuild as error:
        print(f"cannot build images here: {error}", file=sys.stderr)
        return 3
    except Failed as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
