"""Sources are pinned, come from where the machine's apt looks anyway, and age without stopping the work."""

from __future__ import annotations

import hashlib
import io
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest
from scripts.driver import sources
from scripts.driver.sources import CannotBuild, File, Source

OLD, NEW = "1.0-1", "1.0-2"


def a_source(version: str, package: str = "openssl") -> Source:
    name = f"{package}_{version}.dsc"
    return Source(package, version, "pool/x", (File(name, hashlib.sha256(name.encode()).hexdigest()),))


class Mirror:
    """An `Apt` whose index and pool hold what the test says; a file's content is its name."""

    def __init__(self, indexed: list[str], served: list[str], in_pool: list[str] | None = None) -> None:
        self.indexed, self.served, self.in_pool = indexed, served, in_pool or []

    def versions(self, package: str) -> list[Source]:
        return [a_source(version, package) for version in self.indexed]

    def fetch(self, source: Source, into: Path) -> str:
        return self._put(source, into, self.served)

    def fetch_from_pool(self, source: Source, into: Path) -> str:
        return self._put(source, into, self.in_pool)

    def _put(self, source: Source, into: Path, there: list[str]) -> str:
        if source.version not in there:
            return "404"
        for file in source.files:
            (into / file.name).write_text(file.name)
        return ""


def chosen(mirror: Mirror, into: Path, *, strict: bool = False) -> str:
    pins = {package: a_source(OLD, package) for package in sources.PACKAGES.values()}
    found = sources.choose(pins, mirror, into, strict=strict)  # type: ignore[arg-type]
    return found["openssl"].version


def test_the_committed_pins_name_every_package_with_its_files_and_no_server() -> None:
    text = sources.PINS.read_text()
    pins = sources.read_pins(text)

    assert pins.keys() == set(sources.PACKAGES.values())
    assert sources.render_pins(pins.values()) == text
    assert "://" not in text
    assert all(len(source.files) >= 3 for source in pins.values())


def test_what_is_pinned_is_built_and_a_newer_version_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert chosen(Mirror([NEW, OLD], [NEW, OLD]), tmp_path) == OLD
    assert "Debian's index has 1.0-2: run `make driver-pins`" in capsys.readouterr().err


def test_a_pin_that_left_the_index_is_taken_from_the_pool(tmp_path: Path) -> None:
    assert chosen(Mirror([NEW], [NEW], in_pool=[OLD]), tmp_path) == OLD


def test_a_pin_that_is_gone_gives_way_to_the_newest_and_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert chosen(Mirror([NEW], [NEW]), tmp_path) == NEW
    assert "WARNING: pinned openssl 1.0-1, which Debian no longer serves" in capsys.readouterr().err


def test_a_release_is_never_built_from_anything_but_the_pins(tmp_path: Path) -> None:
    with pytest.raises(CannotBuild, match="make driver-pins"):
        chosen(Mirror([NEW], [NEW]), tmp_path, strict=True)


def test_a_version_in_the_index_that_no_server_has_yet_is_passed_over(tmp_path: Path) -> None:
    found = sources.newest("openssl", Mirror([NEW, OLD], [OLD]), tmp_path)  # type: ignore[arg-type]

    assert found.version == OLD


def test_a_file_with_another_checksum_is_never_used(tmp_path: Path) -> None:
    pin = a_source(OLD)
    (tmp_path / pin.files[0].name).write_text("something else")

    assert "not" in sources.bad_files(pin, tmp_path)
    assert not (tmp_path / pin.files[0].name).exists()


def test_without_a_network_the_pinned_files_may_lie_in_a_folder(tmp_path: Path) -> None:
    pins = {package: a_source(OLD, package) for package in sources.PACKAGES.values()}
    for source in pins.values():
        (tmp_path / source.files[0].name).write_text(source.files[0].name)

    assert sources.choose(pins, None, tmp_path, strict=True) == pins

    (tmp_path / pins["musl"].files[0].name).unlink()
    with pytest.raises(CannotBuild, match="musl"):
        sources.choose(pins, None, tmp_path, strict=True)


STANZAS = """\
Types: deb
# an old address
URIs: one://mirror/debian
Suites: bookworm bookworm-updates
Components: main

Types: deb
URIs: one://mirror/debian-security/
Suites: bookworm-security
Components: main

Enabled: no
Types: deb
URIs: off://mirror/debian
Suites: bookworm
"""
LINES = "deb [signed-by=/x.gpg arch=amd64] two://mirror/debian trixie main\n# deb three://mirror/debian trixie main\n"
OTHERS = "deb four://vendor/apt stable-tools main\n"


def test_the_archives_are_those_of_the_machines_own_debian_entries() -> None:
    entries = sources.debian_addresses({"a.sources": STANZAS, "b.list": LINES, "c.list": OTHERS})

    assert sources.archives(entries) == (
        ["one://mirror/debian", "two://mirror/debian"],
        ["one://mirror/debian-security"],
    )


INDEX = """\
Package: openssl
Binary: openssl, libssl3
Version: 3.5.7-1
Files:
 0123 10 openssl_3.5.7-1.dsc
Checksums-Sha256:
 aaaa 10 openssl_3.5.7-1.dsc
 bbbb 20 openssl_3.5.7.orig.tar.gz
 cccc 5 openssl_3.5.7.orig.tar.gz.asc
Directory: pool/main/o/openssl

Package: incomplete
"""


def test_an_entry_of_the_index_is_read_without_its_detached_signature() -> None:
    files = (File("openssl_3.5.7-1.dsc", "aaaa"), File("openssl_3.5.7.orig.tar.gz", "bbbb"))

    assert list(sources.read_index(INDEX)) == [Source("openssl", "3.5.7-1", "pool/main/o/openssl", files)]


def an_archive(path: Path, **files: str) -> None:
    with tarfile.open(path, "w:xz") as archive:
        for name, text in files.items():
            member = tarfile.TarInfo(name.replace("__", "/"))
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))


PATCH = "--- a/code.c\n+++ b/code.c\n@@ -1 +1 @@\n-weak\n+safe\n"


def a_tree(folder: Path, patch: str = PATCH) -> Source:
    an_archive(folder / "x_1.orig.tar.xz", **{"x-1__code.c": "weak\n"})
    debian = {"debian__patches__series": "# comment\nfix.patch\n", "debian__patches__fix.patch": patch}
    debian["debian__changelog"] = (
        "x (1-2) trixie; urgency=high\n\n  * Fix.\n\n -- A <a@b>  Sat, 03 Jan 2026 10:00:00 +0100\n"
    )
    an_archive(folder / "x_1-2.debian.tar.xz", **debian)
    return replace(a_source("1-2", "x"), files=(File("x_1.orig.tar.xz", ""), File("x_1-2.debian.tar.xz", "")))


def test_a_tree_is_upstreams_with_debians_patches(tmp_path: Path) -> None:
    sources.unpack(a_tree(tmp_path), tmp_path, tmp_path / "tree")

    assert (tmp_path / "tree/code.c").read_text() == "safe\n"
    assert sources.dated(tmp_path / "tree") == 1767430800


def test_a_patch_that_does_not_apply_stops_the_build(tmp_path: Path) -> None:
    source = a_tree(tmp_path, PATCH.replace("weak", "strong"))

    with pytest.raises(CannotBuild, match=r"fix\.patch"):
        sources.unpack(source, tmp_path, tmp_path / "tree")
