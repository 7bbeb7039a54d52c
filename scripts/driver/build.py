"""Build the node driver as one file that needs nothing beside it: `make driver`.

    build.py                 build dist/docker-machine-driver-harvester-<arch>.tar.gz, its .sha256 and its .BUILDINFO
    build.py --strict        the same, and refuse to build anything but the pinned sources: for releases
    build.py --verify        build all of it twice, in different folders, and compare
    build.py --pins          pin the newest sources that Debian serves
    build.py --news          only say whether Debian has newer sources than those pinned

    --sources DIR            take the pinned files from there; no network
    --out DIR                where the results go (dist)
    --no-measure             do not start the result

musl, OpenSSL and CPython are compiled once for each set of sources, recipe and compiler, and kept below
$XDG_CACHE_HOME/windrow/driver; what follows (compile our modules, link, pack) takes seconds. Nothing that is built
depends on the day, the user, or a folder's name. docs/explanation/one-file-driver.md tells why it is built so.
Exit code 3: this machine has not got what a build needs, and the text says what; 1: the build failed.
"""

from __future__ import annotations

import argparse
import fcntl
import gzip
import hashlib
import importlib.util
import io
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(HERE))

import sources  # noqa: E402
from sources import CannotBuild, NothingToBuildFrom, Source  # noqa: E402

NAME = "docker-machine-driver-harvester"
ENTRY = "windrow.plugin.__main__"
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}

# Command -> the Debian package that brings it.
TOOLS = {"gcc": "gcc", "ld": "binutils", "make": "make", "perl": "perl", "patch": "patch"}
HEADERS = ("/usr/include/linux/version.h", "linux-libc-dev")
PYTHON = "3.13"
# Where file systems keep files in huge pages, a program that lies on their boundaries is mapped by 2 MB at a time, and
# each process is charged for all of it. Beside the boundaries it is charged for what it touches.
NOT_HUGE = "-Wl,-Ttext-segment=0x410000"


@dataclass(frozen=True, slots=True)
class Interpreter:
    """The compiled libraries, and the moment they are dated by."""

    folder: Path
    epoch: int
    built_from: tuple[Source, ...]
    compiler: str

    @property
    def cc(self) -> Path:
        return self.folder / "bin" / "windrow-cc"

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"


# The libraries


def cache() -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "windrow" / "driver"


def check_tools() -> None:
    missing = [package for command, package in TOOLS.items() if not shutil.which(command)]
    if not Path(HEADERS[0]).exists():
        missing.append(HEADERS[1])
    if missing:
        raise NothingToBuildFrom(
            f"To compile the driver, install (names of Debian's packages): {' '.join(missing)}"
        )
    if platform.system() != "Linux" or platform.machine() not in ARCHITECTURES:
        raise NothingToBuildFrom(
            f"The driver is built on Linux, on x86_64 or aarch64; this is {platform.system()} {platform.machine()}."
        )


def compiler() -> str:
    """What of the host has a say in the result: compiler, linker, kernel headers."""
    first = [_output([tool, "--version"]).splitlines()[0] for tool in ("gcc", "ld")]
    headers = re.findall(r"LINUX_VERSION_CODE (\d+)", Path(HEADERS[0]).read_text())
    return "\n".join([*first, f"kernel headers {headers}", platform.machine(), ""])


def key(chosen: Sequence[Source]) -> str:
    parts = [sources.render_pins(chosen), (HERE / "interpreter").read_text(), compiler()]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:12]


def have_interpreter(where: Path, given: Path | None, *, strict: bool) -> Interpreter:
    """The libraries of the pinned sources, from the cache if they are there; see `sources` for aged pins."""
    pinned = pins()
    if (where / key(pinned) / "done").exists():
        return _interpreter(where / key(pinned), pinned)
    chosen, files = have_sources(where, given, strict=strict)
    folder = where / key(chosen)
    with _alone(folder.with_suffix(".lock")):
        if not (folder / "done").exists():
            _compile(chosen, files, folder)
    return _interpreter(folder, chosen)


def pins() -> list[Source]:
    by_package = sources.read_pins(sources.PINS.read_text())
    return [by_package[package] for package in sources.PACKAGES.values()]


def have_sources(where: Path, given: Path | None, *, strict: bool) -> tuple[list[Source], Path]:
    """What is to be compiled, and the folder its files are in. The network is asked only for what is not there."""
    files = given or where / "files"
    if given is None:
        files.mkdir(parents=True, exist_ok=True)
    apt = None
    if given is None and any(sources.bad_files(pin, files) for pin in pins()):
        apt = sources.Apt(where / "apt")
        apt.update()
    by_package = {pin.package: pin for pin in pins()}
    return list(sources.choose(by_package, apt, files, strict=strict).values()), files


def _interpreter(folder: Path, built_from: Sequence[Source]) -> Interpreter:
    return Interpreter(folder, int((folder / "done").read_text()), tuple(built_from), compiler())


def _compile(chosen: Sequence[Source], files: Path, folder: Path) -> None:
    print("compiling musl, OpenSSL and CPython; this takes minutes, once", file=sys.stderr)
    shutil.rmtree(folder, ignore_errors=True)
    trees = folder / "trees"
    by_package = {source.package: source for source in chosen}
    for tree, package in sources.PACKAGES.items():
        sources.unpack(by_package[package], files, trees / tree)
    epoch = max(sources.dated(trees / tree) for tree in sources.PACKAGES)
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(epoch)}
    done = subprocess.run([HERE / "interpreter", trees, folder], env=environment, check=False)
    if done.returncode:
        raise CannotBuild(f"The libraries could not be compiled; the logs are in {trees}.")
    shutil.rmtree(trees)
    (folder / "done").write_text(f"{epoch}\n")


@contextmanager
def _alone(lock: Path) -> Iterator[None]:
    """Two builds at once would write into one folder: the second waits."""
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


# The program


def roots() -> dict[str, Path]:
    """Where the packages lie that are frozen with the standard library."""
    yaml = importlib.util.find_spec("yaml")
    if yaml is None or yaml.origin is None:
        raise CannotBuild("PyYAML is missing in this Python; run: make driver (it uses the project's own)")
    lean = {path.stem: path.with_suffix("") for path in (HERE / "lean").glob("*.py")}
    return {"windrow": ROOT / "src" / "windrow", "yaml": Path(yaml.origin).parent, **lean}


def freeze(interpreter: Interpreter, into: Path, entry: str, folders: Mapping[str, Path]) -> str:
    pairs = [f"{name}={folder}" for name, folder in folders.items()]
    command = [interpreter.python, "-I", "-S", "-B", "-W", "error", HERE / "freeze.py", entry, into, *pairs]
    return _output(command)


def link(interpreter: Interpreter, folder: Path, out: Path, entry: str, *defines: str) -> None:
    """Compile the small program and link it with what was frozen in the same folder."""
    static = interpreter.folder / "static"
    shutil.copy(HERE / "main.c", folder / "main.c")
    command = [
        str(interpreter.cc), "-O2", "-static", "-no-pie", "-fno-pie", f"-ffile-prefix-map={folder}=.",
        f'-DWINDROW_ENTRY="{entry}"', *defines, f"-I{interpreter.folder / 'include'}",
        "main.c", "frozen.c", "frozen.S", *_libraries(static), "-lm",
        "-Wl,--gc-sections", "-Wl,--build-id=none", NOT_HUGE, "-Wl,-z,noexecstack", "-Wl,-z,stack-size=0x800000", "-s",
        "-o", str(out),
    ]  # fmt: skip
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(interpreter.epoch), "LC_ALL": "C"}
    _output(command, cwd=folder, environment=environment)


def _libraries(static: Path) -> list[str]:
    """libpython first, then what it needs."""
    first = [static / f"libpython{PYTHON}.a"]
    last = [static / "libssl.a", static / "libcrypto.a"]
    between = sorted(set(static.glob("*.a")) - {*first, *last})
    return [str(path) for path in [*first, *between, *last]]


def make_program(interpreter: Interpreter, into: Path) -> Path:
    """The driver as one file, after every module in it was imported once by its twin."""
    print(freeze(interpreter, into, ENTRY, roots()).strip())
    link(interpreter, into, into / "probe", ENTRY, "-DWINDROW_PROBE")
    probe = subprocess.run([into / "probe"], env={}, cwd="/", capture_output=True, text=True, check=False)
    if probe.returncode:
        raise CannotBuild(
            f"Some modules cannot be imported; add what they miss, or leave them out:\n{probe.stderr}"
        )
    link(interpreter, into, into / NAME, ENTRY)
    return into / NAME


# The results


def pack(program: Path, epoch: int) -> bytes:
    """A tar.gz with the program alone, as Rancher's installer wants it."""
    buffer = io.BytesIO()
    with (
        gzip.GzipFile(filename="", mode="wb", fileobj=buffer, mtime=0, compresslevel=9) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as archive,
    ):
        member = tarfile.TarInfo(NAME)
        content = program.read_bytes()
        member.size, member.mode, member.mtime = len(content), 0o755, epoch
        archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def build_info(interpreter: Interpreter, program: Path, modules: str) -> str:
    """What is inside, to decide whether an advisory concerns it."""
    lines = [
        f"program: {NAME}",
        f"sha256: {_digest(program)}",
        f"source-date-epoch: {interpreter.epoch}",
        "linked from:",
    ]
    lines += [
        f"  {source.package} {source.version} (Debian {sources.RELEASE})" for source in interpreter.built_from
    ]
    lines += [
        "compiled with:",
        *(f"  {_with_version(line)}" for line in interpreter.compiler.splitlines()),
        "frozen modules and bytes:",
    ]
    return "\n".join([*lines, *(f"  {line}" for line in modules.splitlines()), ""])


def _with_version(line: str) -> str:
    """Kernel headers give their version as one number."""
    return re.sub(r"\['(\d+)'\]", lambda found: ".".join(map(str, int(found[1]).to_bytes(3))), line)


def write_results(interpreter: Interpreter, program: Path, modules: str, out: Path) -> Path:
    out.mkdir(parents=True, exist_ok=True)
    archive = out / f"{NAME}-{ARCHITECTURES[platform.machine()]}.tar.gz"
    _place(out / NAME, program.read_bytes(), 0o755)
    _place(archive, pack(program, interpreter.epoch))
    _place(archive.with_name(f"{archive.name}.sha256"), f"{_digest(archive)}  {archive.name}\n".encode())
    info = build_info(interpreter, program, modules)
    _place(archive.with_name(archive.name.replace(".tar.gz", ".BUILDINFO")), info.encode())
    return archive


def _place(path: Path, content: bytes, mode: int = 0o644) -> None:
    """All or nothing: a test that runs the old file keeps it."""
    new = path.with_name(f".{path.name}.new")
    new.write_bytes(content)
    new.chmod(mode)
    new.replace(path)


def build(where: Path, out: Path, given: Path | None, *, strict: bool) -> tuple[Interpreter, Path]:
    check_tools()
    where.mkdir(parents=True, exist_ok=True)
    interpreter = have_interpreter(where, given, strict=strict)
    with tempfile.TemporaryDirectory(prefix="windrow-driver-") as scratch:
        program = make_program(interpreter, Path(scratch))
        modules = (Path(scratch) / "modules.txt").read_text()
        return interpreter, write_results(interpreter, program, modules, out)


def verify(given: Path | None) -> int:
    """Everything from the pinned sources on, twice; folders of different length, so that no path can hide."""
    check_tools()
    _, files = have_sources(cache(), given, strict=True)
    results = []
    with tempfile.TemporaryDirectory(prefix="windrow-verify-") as scratch:
        for name in ("one", "another-and-longer"):
            folder = Path(scratch) / name
            start = time.monotonic()
            _, archive = build(folder / "cache", folder / "out", files, strict=True)
            results.append((_digest(folder / "out" / NAME), _digest(archive)))
            print(
                f"{name}: program {results[-1][0]}, archive {results[-1][1]}, {time.monotonic() - start:.0f} s"
            )
            shutil.rmtree(folder / "cache")
    same = results[0] == results[1]
    print("both builds are the same" if same else "the two builds DIFFER")
    return 0 if same else 1


# The pins


def renew_pins() -> int:
    where = cache()
    apt = sources.Apt(where / "apt")
    apt.update()
    files = where / "files"
    files.mkdir(parents=True, exist_ok=True)
    before = sources.read_pins(sources.PINS.read_text()) if sources.PINS.exists() else {}
    found = [sources.newest(package, apt, files) for package in sources.PACKAGES.values()]
    sources.PINS.write_text(sources.render_pins(found))
    for source in found:
        old = before.get(source.package)
        print(
            f"{source.package}: {source.version}" + (f" (was {old.version})" if old and old != source else "")
        )
    return 0


def print_news() -> int:
    where = cache()
    apt = sources.Apt(where / "apt")
    apt.update()
    for pin in pins():
        newer = sources.find_newer(pin, apt)
        print(f"{pin}: " + (sources.upgrade_hint(newer) if newer else "the newest in Debian's index"))
    return 0


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _output(
    command: Sequence[str | Path], *, cwd: Path | None = None, environment: Mapping[str, str] | None = None
) -> str:
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise CannotBuild(f"{Path(command[0]).name} failed:\n{done.stderr or done.stdout}")
    return done.stdout


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for flag in ("strict", "verify", "pins", "news", "no-measure"):
        parser.add_argument(f"--{flag}", action="store_true")
    parser.add_argument("--sources", type=Path)
    parser.add_argument("--out", type=Path, default=ROOT / "dist")
    wanted = parser.parse_args(arguments)
    try:
        if wanted.pins:
            return renew_pins()
        if wanted.news:
            return print_news()
        if wanted.verify:
            return verify(wanted.sources)
        _, archive = build(cache(), wanted.out, wanted.sources, strict=wanted.strict)
    except CannotBuild as why:
        print(f"no driver was built: {why}", file=sys.stderr)
        return why.code
    print(f"{archive.name}: {archive.stat().st_size / 1e6:.1f} MB")
    print(f"  sha256 {_digest(archive)}")
    if wanted.no_measure:
        return 0
    return subprocess.run([sys.executable, HERE / "measure.py", wanted.out / NAME], check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
