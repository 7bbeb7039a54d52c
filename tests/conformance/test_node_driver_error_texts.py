"""Random flags and stored configurations, read by the real Go driver and by us: the same words, the same result.

Where we are stricter, or kinder, it is for one of the reasons listed here; each stands in docs/reference/differences-node-driver.md.
"""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.node_driver_rig import GO_DRIVER, real_program
from tests.conformance.node_driver_versions import version_of

from windrow.machines.plugin.process.client import DriverError, Plugin, open_plugin
from windrow.nodedriver import config_json
from windrow.nodedriver.config import Configuration, InvalidDriverConfig
from windrow.nodedriver.devices import STRUCTURES
from windrow.nodedriver.errors import Refused
from windrow.nodedriver.flags import read_flags
from windrow.nodedriver.options import OPTIONS

pytestmark = pytest.mark.timeout(180)

ROUNDS = 300

# What the Go driver only notices in Create, at Harvester, or never.
STRICTER = (
    "is not a namespace name",
    "invalid number of CPU cores",
    "memorySize is ",
    "the disk size is ",
    "lists no ",
    "is not a MAC address",
    "unexpected namespacedName format",
    "vmAffinity is not an affinity object",
    "the user data is ",
    "which is no name of a CPU model",
)
# Go's own texts about YAML and JSON, for which we have ours.
ABOUT_SYNTAX = (
    "error converting YAML to JSON",
    "error unmarshaling JSON",
    "error unmarshalling ",
    "json: cannot unmarshal ",
    "invalid character ",
    "unexpected end of JSON input",
)
WRAPPED = "error unmarshalling driver config JSON: "
# JSON that Go refuses and we read: a size as text, a list in place of the object around it, a size with a fraction of 0,
# and in config.json a boot order below 0, which is refused by its rule before anything is created.
KINDER = (
    "json: cannot unmarshal string into Go struct field Disk.disks.size",
    "json: cannot unmarshal array into Go value",
    f"{WRAPPED}json: cannot unmarshal number -1 into Go struct field Disk.DiskInfo.disks.bootOrder",
    *(
        f"{WRAPPED}json: cannot unmarshal array into Go struct field targetDriver.{key} of"
        for key in STRUCTURES
    ),
)

DISKS = (
    "", "{}", '{"disks":[]}', "null", "[]", "x", '{"disks":[{}]}', '{"disks":[null]}', '{"disks":{"a":1}}',
    '{"disks":[{"imageName":"i"}]}', '{"disks":[{"imageName":"i","size":5}]}',
    '{"disks":[{"storageClassName":"s","size":5,"bootOrder":1,"bus":"sata","type":"cd-rom","hotPlugAble":true}]}',
    '{"disks":[{"imageName":"i","size":"5"}]}', '{"disks":[{"imageName":"i","size":-1}]}',
    '{"disks":[{"imageName":"i","size":5,"bootOrder":-1}]}', '{"DISKS":[{"IMAGENAME":"i","SIZE":5}]}',
    '{"disks":[{"imageName":"i","size":5.0}]}', '{"disks":[{"imageName":"i","size":5}]} x',
)  # fmt: skip
CARDS = (
    "", "{}", '{"interfaces":[]}', "null", '{"interfaces":[{}]}', '{"interfaces":[{"networkName":"n"}]}',
    '{"interfaces":[{"networkName":1}]}', "{",
)  # fmt: skip
STATIC = "  - type: static\n    gateway: 1.1.1.1\n"
PHYSICAL = "version: 1\nconfig:\n- type: physical\n"
NETWORK_DATA = (
    "", "version: 2", "config: []", "version: 1", "version: 1\nconfig: []", "version: 1\nconfig:\n- {}",
    f"{PHYSICAL}", f"{PHYSICAL}  subnets:\n  - {{}}", f"{PHYSICAL}  subnets:\n{STATIC}",
    f"{PHYSICAL}  subnets:\n{STATIC}{STATIC}", f"{PHYSICAL}  subnets:\n{STATIC}- type: nameserver\n  address: [1.1.1.1]",
    f"{PHYSICAL}  subnets:\n  - type: dhcp", "version: 1\nconfig:\n- type: nameserver",
    "version: 1\nconfig:\n- type: bond", ": x :", "a: [", "- a", base64.b64encode(b"version: 2").decode(),
)  # fmt: skip
DEVICES = (
    "",
    "{}",
    "x",
    '{"vGPURequests":[{"name":"n","deviceName":"d"}]}',
    '{"vGPURequests":[{"deviceName":1}]}',
)
VALUES: Mapping[str, tuple[Any, ...]] = {
    "disk-info": DISKS, "network-info": CARDS, "network-data": NETWORK_DATA, "vgpu-info": DEVICES,
    "image-name": ("", "a", "a/b"), "disk-size": (0, 10, -1), "network-name": ("", "a", "a/b"),
    "key-pair-name": ("", "a", "a/b"), "ssh-private-key-path": ("", "/x"),
    "enable-efi": (True, False), "enable-secure-boot": (True, False, False),
    "reserved-memory-size": (-1, 0, 256), "memory-size": (4, 4, 0), "cpu-count": (2, 2, 0, -3),
    "user-data": ("", "null", "aGVsbG86IDE=", "a: 1", "YTogMQ==\n"),
    "vm-affinity": ("", "{}", "null", '{"podAffinity":{}}', "e30="),
    "kubeconfig-content": ("", "YXBpVmVyc2lvbjogdjE=", "apiVersion: v1"),
    "cluster-name": ("", "c1"), "vm-namespace": ("default", "ns1"), "ssh-port": (22, 2222),
    "cpu-model": ("", "host-model"), "network-model": ("", "e1000"),
}  # fmt: skip


def drawn_flags(rng: random.Random) -> dict[str, Any]:
    """Every flag with its default, some with another value; every second time disks and cards are in order."""
    values: dict[str, Any] = {option.flag: option.default for option in OPTIONS}
    values |= {f"harvester-{name}": rng.choice(some) for name, some in VALUES.items() if rng.random() < 0.4}
    if rng.random() < 0.5:
        values["harvester-disk-info"] = '{"disks":[{"imageName":"i","size":5}]}'
        values["harvester-network-info"] = '{"interfaces":[{"networkName":"n"}]}'
    return values | {"swarm-master": False, "swarm-host": "tcp://0.0.0.0:3376", "swarm-discovery": ""}


def drawn_document(rng: random.Random, config: Mapping[str, Any]) -> bytes:
    """Some keys of the stored configuration, in any case, with values of their type or any; now and then no JSON."""
    fitting: Mapping[type, tuple[Any, ...]] = {str: ("a", "é", "<&>"), int: (3, -1), bool: (True, False)}
    values: tuple[Any, ...] = (
        "", "é", "<&>", 3, -1, 1.5, 1e20, True, False, None, [], {}, [1],
        {"disks": [{"imageName": "x", "size": 1}]}, {"Disks": [{"BOOTORDER": -1}]},
        {"interfaces": [{"networkName": 3}]}, {"vGPURequests": [{"name": "a", "devicename": "d"}]},
    )  # fmt: skip
    document = {}
    for key in rng.sample(list(config), rng.randint(0, 8)):
        some = fitting.get(type(config[key]), values) if rng.random() < 0.9 else values
        document[rng.choice((key, key, key.lower(), key.upper()))] = rng.choice(some)
    text = json.dumps(document, ensure_ascii=rng.random() < 0.5).encode()
    if rng.random() < 0.1:
        place = rng.randrange(len(text))
        text = text[:place] + bytes([rng.randrange(256)]) + text[place + 1 :]
    return text


def opened(folder: Path) -> Any:
    return open_plugin(
        real_program(GO_DRIVER), "harvester", env={"PATH": "/usr/bin:/bin", "HOME": str(folder)}
    )


async def go_result(folder: Path, method: str, value: Any) -> tuple[str, dict[str, Any]]:
    """What a fresh Go driver says, and its configuration afterwards."""
    async with opened(folder) as plugin:
        said = ""
        try:
            await (set_flags(plugin, value) if method == "flags" else plugin.set_config(value))
        except DriverError as error:
            said = error.text
        return said, json.loads(await plugin.get_config())


async def set_flags(plugin: Plugin, values: Mapping[str, Any]) -> None:
    await plugin.set_flags(values)


def shown(configuration: Configuration) -> dict[str, Any]:
    """The configuration as it is stored, without what Go does not have."""
    found = json.loads(config_json.dump(configuration))
    return {key: value for key, value in found.items() if not key.startswith("Windrow")}


def normalised(config: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration with an empty list for the null that Go makes of a missing one."""
    return {
        key: {name: entries or [] for name, entries in value.items()} if isinstance(value, dict) else value
        for key, value in config.items()
    }


def loaded(document: bytes, before: Configuration) -> tuple[dict[str, Any] | None, str]:
    try:
        return shown(config_json.load(document, before)), ""
    except InvalidDriverConfig as error:
        return None, str(error)


async def fresh(folder: Path) -> Configuration:
    async with opened(folder) as plugin:
        return config_json.load(await plugin.get_config(), Configuration())


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_flags_are_read_as_the_go_driver_reads_them(seed: int, tmp_path: Path) -> None:
    rng, before, version = random.Random(seed), await fresh(tmp_path), version_of(real_program(GO_DRIVER))
    for _ in range(ROUNDS // 3):
        values = version.known_fields(drawn_flags(rng))
        said, config = await go_result(tmp_path, "flags", values)
        try:
            ours = version.known_keys(shown(read_flags(values, before)))
        except Refused as refused:
            words = [problem.go or problem.message for problem in refused.problems]
            if said and not said.startswith(ABOUT_SYNTAX):
                assert said in words, values
            elif not said:
                assert any(part in words[0] for part in STRICTER), (words, values)
            continue
        assert not said or said.startswith(KINDER), values
        if said:
            continue
        for key in [key for key in ours if is_more_lenient(key, values)]:
            del ours[key], config[key]
        assert normalised(ours) == normalised(config), values


def is_more_lenient(key: str, values: Mapping[str, Any]) -> bool:
    """Whether it is `null`: the Go driver takes that for base64, or for an affinity that makes it panic."""
    flag = {"UserData": "harvester-user-data", "VMAffinity": "harvester-vm-affinity"}.get(key)
    return flag is not None and values[flag] == "null"


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_stored_configurations_are_read_as_the_go_driver_reads_them(seed: int, tmp_path: Path) -> None:
    rng, before, version = random.Random(seed), await fresh(tmp_path), version_of(real_program(GO_DRIVER))
    for _ in range(ROUNDS // 3):
        document = drawn_document(rng, version.known_keys(shown(before)))
        said, config = await go_result(tmp_path, "stored", document)
        if said and not version.wraps_config_errors:
            said = WRAPPED + said.replace(" field Driver.", " field targetDriver.")
        ours, words = loaded(document, before)
        if ours is None:
            assert said, (words, document)
            continue
        if "into Go struct field targetDriver.DiskSize of type string" in said or said.startswith(KINDER):
            continue  # v0.6.0 wrote a number there, and we read it
        assert not said, document
        assert normalised(version.known_keys(ours)) == normalised(config), document
