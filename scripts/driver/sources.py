"""The sources that the one-file driver is compiled from: Debian's source packages, pinned by version and SHA-256.

Debian serves them as an upstream archive and a set of patches, security patches among them, under an index that it
signs. Nothing here names a server. The addresses are those of the Debian entries the machine has anyway; a private
apt directory asks them for the release named below, and the machine's own settings stay as they are.

What is pinned is what is built. Debian drops a version from its index when a fixed one replaces it, so a pin ages:

* pinned and served: built; a newer version is named, with what to do;
* pinned and no longer in the index: asked for by its path in the pool, where files outlive the index for a while;
* not to be had at all: with `strict`, the end. Without, the newest version that the signed index offers, and a loud
  word about it: an old pin must not stop a build for another change.
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from pathlib import Path

HERE = Path(__file__).resolve().parent
PINS = HERE / "pins.txt"

RELEASE = "trixie"
SUITES = ("", "-updates")
SECURITY = "-security"
# The tree's name in the build -> Debian's name for the source package.
PACKAGES = {"musl": "musl", "openssl": "openssl", "python": "python3.13"}
APT_MAY_TAKE_S = 600
KEYRINGS = (
    "/usr/share/keyrings/debian-archive-keyring.pgp",
    "/usr/share/keyrings/debian-archive-keyring.gpg",
)


class CannotBuild(Exception):
    """A message and what to do; `code` is the exit code."""

    code = 1


class NothingToBuildFrom(CannotBuild):
    """This machine has not got, and cannot get, what a build needs: nothing is wrong with ours."""

    code = 3


@dataclass(frozen=True, slots=True)
class File:
    name: str
    sha256: str


@dataclass(frozen=True, slots=True)
class Source:
    """One version of one source package."""

    package: str
    version: str
    directory: str
    files: tuple[File, ...]

    def __str__(self) -> str:
        return f"{self.package} {self.version}"


def wanted(name: str) -> bool:
    """Whether a file of a source package is needed: detached signatures are not, the index is signed instead."""
    return not name.endswith(".asc")


# The committed file


def read_pins(text: str) -> dict[str, Source]:
    """The pins, by Debian's package name."""
    found: dict[str, Source] = {}
    package = version = directory = ""
    files: list[File] = []
    for line in [*text.splitlines(), "end"]:
        if not line.strip() or line.startswith("#"):
            continue
        if line.startswith(" "):
            digest, name = line.split()
            files.append(File(name, digest))
            continue
        if package:
            found[package] = Source(package, version, directory, tuple(files))
        if line != "end":
            package, version, directory = line.split()
            files = []
    return found


def render_pins(sources: Iterable[Source]) -> str:
    lines = [
        f"# Source packages of Debian ({RELEASE}) that the one-file driver is compiled from:",
        "# name, version, folder below the archive's root; then SHA-256 and name of each file.",
        "# Written by `make driver-pins`; docs/how-to/build-the-driver.md says when to run it.",
    ]
    for source in sorted(sources, key=lambda source: source.package):
        lines += ["", f"{source.package} {source.version} {source.directory}"]
        lines += [f"  {file.sha256}  {file.name}" for file in source.files]
    return "\n".join([*lines, ""])


# The machine's own entries


def debian_addresses(texts: Mapping[str, str]) -> list[tuple[str, str]]:
    """(address, suite) of every binary or source entry in apt's source files, given by file name."""
    found: list[tuple[str, str]] = []
    for name, text in sorted(texts.items()):
        found += _stanzas(text) if name.endswith(".sources") else _one_line_entries(text)
    return list(dict.fromkeys(found))


def _one_line_entries(text: str) -> Iterator[tuple[str, str]]:
    for line in text.splitlines():
        match = re.match(r"\s*deb(?:-src)?\s+(?:\[[^]]*]\s+)?(\S+)\s+(\S+)", line)
        if match:
            yield match[1].rstrip("/"), match[2]


def _stanzas(text: str) -> Iterator[tuple[str, str]]:
    for stanza in re.split(r"\n\s*\n", text):
        plain = "\n".join(line for line in stanza.splitlines() if not line.startswith("#"))
        fields = dict(re.findall(r"^([\w-]+):[ \t]*((?:.*)(?:\n[ \t].*)*)", plain, re.MULTILINE))
        if fields.get("Enabled", "yes").strip().lower() == "no":
            continue
        for address in fields.get("URIs", "").split():
            for suite in fields.get("Suites", "").split():
                yield address.rstrip("/"), suite


def archives(entries: Iterable[tuple[str, str]]) -> tuple[list[str], list[str]]:
    """The addresses of Debian's archive and of its security archive, told apart by the suites they serve."""
    names = r"(bullseye|bookworm|trixie|forky|duke|sid|(old)*stable|testing|unstable)"
    plain: list[str] = []
    security: list[str] = []
    for address, suite in entries:
        if re.fullmatch(rf"{names}(-updates)?", suite):
            plain.append(address)
        elif re.fullmatch(rf"{names}(-security|/updates)", suite):
            security.append(address)
    return list(dict.fromkeys(plain)), list(dict.fromkeys(security))


# apt, in a directory of its own


class Apt:
    """Debian's indices for `RELEASE`, fetched and verified by apt in a private directory."""

    def __init__(self, where: Path) -> None:
        self.where = where
        self.archives, self.security = archives(debian_addresses(_machine_entries()))
        if not self.archives:
            raise NothingToBuildFrom(
                "This machine's apt names no Debian archive, so there is nowhere to take the sources from. "
                "Build on Debian, or give a folder with the pinned files: --sources DIR."
            )
        keyring = next((path for path in KEYRINGS if Path(path).exists()), None)
        if keyring is None:
            raise NothingToBuildFrom("Debian's keys are missing; install debian-archive-keyring.")
        stanzas = [
            _stanza(address, [f"{RELEASE}{end}" for end in SUITES], keyring) for address in self.archives
        ]
        stanzas += [_stanza(address, [f"{RELEASE}{SECURITY}"], keyring) for address in self.security]
        for part in ("sources.d", "lists/partial", "cache/archives/partial", "none"):
            (where / part).mkdir(parents=True, exist_ok=True)
        (where / "sources.d" / "debian.sources").write_text("\n".join(stanzas))
        (where / "status").touch()

    def update(self) -> None:
        done = self._run("apt-get", "update", "-o", "APT::Update::Error-Mode=any")
        if done.returncode:
            raise NothingToBuildFrom(
                f"apt cannot read Debian's index of {RELEASE}: {_last_lines(done.stderr)}"
            )

    @functools.cache  # noqa: B019  # one Apt for each run
    def versions(self, package: str) -> list[Source]:
        """Every version in the index, newest first."""
        done = self._run("apt-cache", "showsrc", "--only-source", package)
        found = {source.version: source for source in read_index(done.stdout)}
        return sorted(found.values(), key=functools.cmp_to_key(_newer_first))

    def fetch(self, source: Source, into: Path) -> str:
        """Put the files of an indexed version into a folder; what went wrong, or nothing."""
        command = ("apt-get", "source", "--download-only", f"{source.package}={source.version}")
        done = self._run(*command, cwd=into)
        return _last_lines(done.stderr) if done.returncode else ""

    def fetch_from_pool(self, source: Source, into: Path) -> str:
        """As `fetch`, for a version that the index no longer names; checked against the pin's SHA-256."""
        for file in source.files:
            targets = [
                f"{address}/{source.directory}/{file.name}" for address in [*self.archives, *self.security]
            ]
            if (into / file.name).exists() or any(self._helper(url, into, file) for url in targets):
                continue
            return f"{file.name} is no longer in the pool"
        return ""

    def _helper(self, address: str, into: Path, file: File) -> bool:
        done = self._run(
            "/usr/lib/apt/apt-helper",
            "download-file",
            address,
            str(into / file.name),
            f"SHA256:{file.sha256}",
        )
        return done.returncode == 0

    def _run(self, *command: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        where = self.where
        settings = {
            "Dir::Etc::SourceList": where / "none" / "list",
            "Dir::Etc::SourceParts": where / "sources.d",
            "Dir::Etc::Preferences": where / "none" / "preferences",
            "Dir::Etc::PreferencesParts": where / "none",
            "Dir::State": where,
            "Dir::State::Lists": where / "lists",
            "Dir::State::Status": where / "status",
            "Dir::Cache": where / "cache",
            "APT::Sandbox::User": "",
            "Acquire::Languages": "none",
            "Acquire::Retries": "3",
        }
        options = [part for name, value in settings.items() for part in ("-o", f"{name}={value}")]
        environment = {**os.environ, "LC_ALL": "C"}
        try:
            return subprocess.run(
                [command[0], *options, *command[1:]],
                cwd=cwd, env=environment, capture_output=True, text=True, check=False, timeout=APT_MAY_TAKE_S,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise NothingToBuildFrom(
                f"{command[0]} had no answer within {APT_MAY_TAKE_S} s; try again later."
            ) from None


def read_index(text: str) -> Iterator[Source]:
    """The versions in what `apt-cache showsrc` says."""
    for stanza in re.split(r"\n\s*\n", text):
        fields = dict(re.findall(r"^([\w-]+):[ \t]*((?:.*)(?:\n[ \t].*)*)", stanza, re.MULTILINE))
        if not {"Package", "Version", "Directory", "Checksums-Sha256"} <= fields.keys():
            continue
        lines = [line.split() for line in fields["Checksums-Sha256"].splitlines() if line.strip()]
        files = tuple(File(name, digest) for digest, _, name in lines if wanted(name))
        yield Source(fields["Package"].strip(), fields["Version"].strip(), fields["Directory"].strip(), files)


def _machine_entries() -> dict[str, str]:
    paths = [Path("/etc/apt/sources.list")]
    parts = Path("/etc/apt/sources.list.d")
    paths += [*parts.glob("*.list"), *parts.glob("*.sources")]
    return {path.name: path.read_text() for path in paths if path.is_file()}


def _stanza(address: str, suites: Sequence[str], keyring: str) -> str:
    lines = ["Types: deb-src", f"URIs: {address}", f"Suites: {' '.join(suites)}", "Components: main"]
    return "\n".join([*lines, f"Signed-By: {keyring}", ""])


def _newer_first(one: Source, other: Source) -> int:
    if one.version == other.version:
        return 0
    newer = subprocess.run(["dpkg", "--compare-versions", one.version, "gt", other.version], check=False)
    return -1 if newer.returncode == 0 else 1


def _last_lines(text: str) -> str:
    told = [line for line in text.splitlines() if line.startswith(("E:", "Err:"))] or text.splitlines()
    return " ".join(told[-2:])


# From pins to files


def choose(
    pins: Mapping[str, Source], apt: Apt | None, files: Path, *, strict: bool, loudly: bool = True
) -> dict[str, Source]:
    """Have the files of every package in `files` and say which version that is; the module's text says how."""
    chosen: dict[str, Source] = {}
    for package in PACKAGES.values():
        if package not in pins:
            raise CannotBuild(f"{PINS.name} does not pin {package}; run: make driver-pins")
        chosen[package] = _choose_one(pins[package], apt, files, strict=strict)
        if loudly and apt is not None:
            warn_of_newer(chosen[package], pins[package], apt)
    return chosen


def _choose_one(pin: Source, apt: Apt | None, files: Path, *, strict: bool) -> Source:
    if not bad_files(pin, files):
        return pin
    if apt is None:
        raise NothingToBuildFrom(f"{pin}: {bad_files(pin, files)}; put the pinned files into {files}.")
    indexed = pin.version in [source.version for source in apt.versions(pin.package)]
    trouble = apt.fetch(pin, files) if indexed else apt.fetch_from_pool(pin, files)
    if not trouble and not (trouble := bad_files(pin, files)):
        return pin
    if strict:
        raise NothingToBuildFrom(f"The pinned {pin} is not to be had ({trouble}). Run: make driver-pins")
    return newest(pin.package, apt, files)


def newest(package: str, apt: Apt, files: Path) -> Source:
    """The newest version whose files are really served: a mirror may name one before it has it."""
    troubles = []
    for source in apt.versions(package):
        trouble = apt.fetch(source, files) or bad_files(source, files)
        if not trouble:
            return source
        troubles.append(f"{source.version}: {trouble}")
        print(f"note: {source} is in the index, but not to be had: {trouble}", file=sys.stderr)
    raise NothingToBuildFrom(
        f"Debian's index offers no {package} that can be fetched ({'; '.join(troubles) or 'none named'})."
    )


def warn_of_newer(source: Source, pin: Source, apt: Apt) -> None:
    if source.version != pin.version:
        print(
            f"WARNING: pinned {pin}, which Debian no longer serves; built with {source.version}, verified by Debian's "
            "signed index only. Run `make driver-pins` and commit the result.",
            file=sys.stderr,
        )
    elif newer := find_newer(pin, apt):
        print(f"note: pinned {pin}; {upgrade_hint(newer)}", file=sys.stderr)


def find_newer(pin: Source, apt: Apt) -> Source | None:
    """The newest version in Debian's index, None where that is the pinned one."""
    offered = apt.versions(pin.package)
    return offered[0] if offered and _newer_first(offered[0], pin) < 0 else None


def upgrade_hint(newer: Source) -> str:
    return f"Debian's index has {newer.version}: run `make driver-pins`, build, and commit the result"


def bad_files(source: Source, files: Path) -> str:
    """What is missing or different in the folder, or nothing."""
    for file in source.files:
        path = files / file.name
        if not path.exists():
            return f"{file.name} is missing"
        found = hashlib.sha256(path.read_bytes()).hexdigest()
        if found != file.sha256:
            path.unlink()
            return f"{file.name} has SHA-256 {found}, not {file.sha256}"
    return ""


# From files to trees


def unpack(source: Source, files: Path, into: Path) -> None:
    """Upstream's archive with Debian's patches applied: what `dpkg-source -x` does, with tar and patch alone."""
    names = [file.name for file in source.files]
    upstream = next(name for name in names if re.search(r"\.orig\.tar\.\w+$", name))
    debian = next(name for name in names if re.search(r"\.debian\.tar\.\w+$", name))
    shutil.rmtree(into, ignore_errors=True)
    into.mkdir(parents=True)
    with tarfile.open(files / upstream) as archive:
        archive.extractall(into, members=_without_top(archive), filter="tar")
    with tarfile.open(files / debian) as archive:
        archive.extractall(into, filter="tar")
    for line in (into / "debian/patches/series").read_text().splitlines():
        name = line.split("#")[0].split()
        if name:
            _patch(into, into / "debian/patches" / name[0])


def _without_top(archive: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    """The members, without the one folder that holds them all."""
    for member in archive.getmembers():
        top, _, rest = member.name.removeprefix("./").partition("/")
        if not rest:
            continue
        member.name = rest
        if member.islnk():
            member.linkname = member.linkname.removeprefix("./").removeprefix(f"{top}/")
        yield member


def _patch(tree: Path, patch: Path) -> None:
    command = ["patch", "-t", "-F", "0", "-N", "-p1", "-u", "-V", "never", "-E", "-s", "-i", str(patch)]
    done = subprocess.run(command, cwd=tree, capture_output=True, text=True, check=False)
    if done.returncode:
        raise CannotBuild(f"{patch.name} does not apply: {(done.stdout + done.stderr).strip()}")


def dated(tree: Path) -> int:
    """When Debian last changed a tree, in seconds: the date of the newest entry of its change log."""
    text = (tree / "debian/changelog").read_text()
    match = re.search(r"^ -- .*>  (.*)$", text, re.MULTILINE)
    if match is None:
        raise CannotBuild(f"{tree.name}: Debian's change log has no date.")
    return int(parsedate_to_datetime(match[1]).timestamp())
