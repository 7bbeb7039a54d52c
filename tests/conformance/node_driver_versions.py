"""The releases of the Go driver that the conformance tests know, and in what each differs from the newest, as data.

Which one a program is, is in the build information that Go puts into it: each release is built with another release of
Harvester's modules. WINDROW_GO_NODE_DRIVER_VERSION names it where that does not tell.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from windrow.protocols.dockermachine import config_field_of

VERSION = "WINDROW_GO_NODE_DRIVER_VERSION"
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class GoVersion:
    """A release. `flags` and `keys` (of config.json) are those that it does not have yet."""

    name: str
    flags: frozenset[str] = frozenset()
    keys: frozenset[str] = frozenset()
    # Since v0.6.6 an affinity of null is looked into.
    dies_of_null_affinity: bool = True
    # Since v0.7.0 the kubeconfig in the environment takes the place of the stored one.
    reloads_kubeconfig: bool = True
    # Since v0.7.0; before, Go's own words came without these in front.
    wraps_config_errors: bool = True
    # Since v0.7.2, and those of the guest cluster since v1.0.5.
    removes_all_claims: bool = True

    @property
    def fields(self) -> frozenset[str]:
        """The fields of a machine config that it does not have: `cpuModel`."""
        return frozenset(config_field_of(option.removeprefix("--")) for option in self._options)

    def has_flags(self, words: Sequence[str]) -> bool:
        """Whether it knows every flag among the words of a command line."""
        return not any(word in self._options for word in words)

    def known(self, words: Sequence[str]) -> list[str]:
        """The words without the flags, and their values, that it does not have."""
        found, skip = [], False
        for place, word in enumerate(words):
            if skip:
                skip = False
            elif word in self._options:
                skip = place + 1 < len(words) and not words[place + 1].startswith("--")
            else:
                found.append(word)
        return found

    def known_keys(self, config: Mapping[str, T]) -> dict[str, T]:
        """The stored configuration without the keys that it does not have."""
        return {key: value for key, value in config.items() if key not in self.keys}

    def known_fields(self, values: Mapping[str, T]) -> dict[str, T]:
        """The values by flag, without the flags that it does not have."""
        return {name: value for name, value in values.items() if f"--{name}" not in self._options}

    @property
    def _options(self) -> frozenset[str]:
        return frozenset(f"--harvester-{flag}" for flag in self.flags)


HEAD = GoVersion("HEAD")
V1_0_6 = GoVersion("v1.0.6", keys=frozenset({"IPv6Address"}))
V0_6_3 = GoVersion(
    "v0.6.3",
    flags=frozenset(
        {
            "cluster-name",
            "cpu-model",
            "cpu-pinning",
            "enable-efi",
            "enable-secure-boot",
            "enable-tpm",
            "isolate-emulator-thread",
            "reserved-memory-size",
            "vgpu-info",
        }
    ),
    keys=frozenset(
        {
            "IPv6Address",
            "ClusterName",
            "CPUModel",
            "ReservedMemorySize",
            "EnableEFI",
            "EnableSecureBoot",
            "VGPUInfo",
            "CPUPinning",
            "IsolateEmulatorThread",
            "EnableTPM",
        }
    ),
    dies_of_null_affinity=False,
    reloads_kubeconfig=False,
    wraps_config_errors=False,
    removes_all_claims=False,
)
VERSIONS: Mapping[str, GoVersion] = {each.name: each for each in (V0_6_3, V1_0_6, HEAD)}

# The version of github.com/harvester/harvester in a release's go.mod, or the commit in it.
BUILT_WITH: Mapping[str, GoVersion] = {"6914c5561119": V0_6_3, "c537e12b7f09": V1_0_6, "v1.8.0": HEAD}
_HARVESTER = re.compile(rb"\ndep\tgithub\.com/harvester/harvester\t([^\n]*)(?:\n=>\t([^\n]*))?")


class UnknownVersion(Exception):
    """What to set, for a program that does not tell which release it is."""


@functools.cache
def version_of(program: Path) -> GoVersion:
    """The release that the program is. Raises UnknownVersion."""
    names = ", ".join(VERSIONS)
    if named := os.environ.get(VERSION):
        if named not in VERSIONS:
            raise UnknownVersion(f"{VERSION} is {named}, and the tests know {names}")
        return VERSIONS[named]
    found = _HARVESTER.search(program.read_bytes())
    built_with = " ".join(part.decode() for part in found.groups() if part) if found else ""
    for mark, version in BUILT_WITH.items():
        if mark in built_with:
            return version
    raise UnknownVersion(
        f"{program} is built with Harvester's modules {built_with or '(none named)'}, as no release that the tests know is; "
        f"set {VERSION} to one of {names}"
    )
