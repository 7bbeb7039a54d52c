"""Which release of the Go driver a program is, and which flags that one has."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.conformance.node_driver_versions import HEAD, V0_6_3, V1_0_6, VERSION, UnknownVersion, version_of


@pytest.fixture(autouse=True)
def unnamed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VERSION, raising=False)


def a_program(folder: Path, harvester: str) -> Path:
    """A program with Go's build information in it."""
    program = folder / "driver"
    program.write_bytes(
        b"\x7fELF\0mod\tgithub.com/harvester/docker-machine-driver-harvester\t(devel)\t\n"
        b"dep\tgithub.com/harvester/go-common\tv0.0.0\th1:x=\n"
        + f"dep\tgithub.com/harvester/harvester\t{harvester}\ndep\tgithub.com/rancher/machine\tv0\n\0".encode()
    )
    return program


@pytest.mark.parametrize(
    ("harvester", "version"),
    [
        ("v1.8.0\th1:x=", HEAD),
        ("v1.6.0-rc3\n=>\tgithub.com/harvester/harvester\tv0.0.0-20251016061812-c537e12b7f09\th1:x=", V1_0_6),
        ("v1.1.1\n=>\tgithub.com/harvester/harvester\tv0.0.2-0.20230111100841-6914c5561119\th1:x=", V0_6_3),
        ("v1.1.1\n=>\t/src/harvester-6914c5561119\t(devel)\t", V0_6_3),
    ],
)  # fmt: skip
def test_a_program_tells_its_release_by_what_it_is_built_with(
    tmp_path: Path, harvester: str, version: object
) -> None:
    assert version_of(a_program(tmp_path, harvester)) is version


def test_another_program_says_what_to_set(tmp_path: Path) -> None:
    with pytest.raises(UnknownVersion, match=f"v1.9.0.*set {VERSION} to one of v0.6.3, v1.0.6, HEAD"):
        version_of(a_program(tmp_path, "v1.9.0\th1:x="))


def test_the_environment_names_a_release_that_the_tests_know(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VERSION, "v0.6.3")
    assert version_of(a_program(tmp_path, "v1.9.0")) is V0_6_3
    monkeypatch.setenv(VERSION, "v2")
    with pytest.raises(UnknownVersion, match=f"{VERSION} is v2, and the tests know v0.6.3, v1.0.6, HEAD"):
        version_of(a_program(tmp_path / "..", "v1.9.0"))


def test_flags_that_a_release_lacks_are_left_out_with_their_values() -> None:
    words = ["--harvester-cpu-count", "2", "--harvester-enable-efi", "--harvester-cluster-name", "c1", "m-1"]
    assert V0_6_3.known(words) == ["--harvester-cpu-count", "2", "m-1"]
    assert HEAD.known(words) == words
    assert (V0_6_3.has_flags(words), V1_0_6.has_flags(words)) == (False, True)
    assert "cpuModel" in V0_6_3.fields
