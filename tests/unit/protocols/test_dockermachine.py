"""docker-machine's words: flags, options and states, there and back."""

from __future__ import annotations

from typing import Any

import pytest

from windrow.protocols import dockermachine
from windrow.protocols.dockermachine import (
    DEFAULT_LIMITS,
    FLAGS,
    METHODS,
    REGISTRY,
    STATES,
    Flag,
    config_field_of,
    read_flags,
    read_options,
    write_flags,
    write_options,
)
from windrow.protocols.gob import INTERFACE, BadGob, Decoder, Encoder, Interface, Type

EVERY_KIND = (
    Flag("string", "x-name", "a name", "X_NAME", "dflt"),
    Flag("string", "x-none", "", "", ""),
    Flag("int", "x-count", "a count", "X_COUNT", -1),
    Flag("int", "x-zero", "a count", "", 0),
    Flag("bool", "x-on", "a switch", "X_ON", False),
    Flag("strings", "x-list", "a list", "X_LIST", ["a", "b"]),
    Flag("strings", "x-empty", "a list", "X_LIST", []),
)


def sent(type: Type, value: Any) -> Any:
    decoder = Decoder(DEFAULT_LIMITS)
    decoder.feed(Encoder(REGISTRY).encode(type, value))
    return decoder.next()


def test_flags_arrive_in_order_with_their_defaults() -> None:
    assert read_flags(sent(FLAGS, write_flags(EVERY_KIND))) == EVERY_KIND


def test_options_arrive_with_their_types() -> None:
    options = {"s": "text", "n": 300, "neg": -1, "b": True, "off": False, "l": ["a"], "none": [], "": ""}

    received = read_options(sent(INTERFACE, write_options(options)))

    assert received == options
    assert [value.__class__ for value in received.values()] == [value.__class__ for value in options.values()]


def test_a_host_without_options_sends_no_map() -> None:
    assert read_options(Interface("*rpcdriver.RPCFlags", {})) == {}


def test_an_option_of_a_type_that_no_flag_has_is_left_out() -> None:
    values = {
        "kept": Interface("int", 1),
        "nil": None,
        "odd": Interface("float64", 1.5),
        "wrong": Interface("int", "text"),
    }

    assert read_options(Interface("*rpcdriver.RPCFlags", {"Values": values})) == {"kept": 1}


@pytest.mark.parametrize(
    "value",
    [
        None,
        {},
        Interface("*other.Flags", {}),
        Interface("*rpcdriver.RPCFlags", []),
        Interface("*rpcdriver.RPCFlags", {"Values": 1}),
    ],
)
def test_what_is_no_options_is_refused(value: Any) -> None:
    with pytest.raises(BadGob, match="no RPCFlags"):
        read_options(value)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("flags", "not a list"),
        ([None], "unknown type"),
        ([{}], "unknown type"),
        ([Interface("*mcnflag.FloatFlag", {})], "unknown type .*FloatFlag"),
        ([Interface("*mcnflag.IntFlag", {"Value": "1"})], "is no \\*mcnflag.IntFlag"),
        ([Interface("*mcnflag.IntFlag", "1")], "is no \\*mcnflag.IntFlag"),
    ],
)
def test_what_is_no_flag_is_refused(value: Any, words: str) -> None:
    with pytest.raises(BadGob, match=words):
        read_flags(value)


def test_an_option_that_no_host_could_send_is_not_written() -> None:
    with pytest.raises(BadGob, match="the option 'x' is a float"):
        write_options({"x": 1.5})  # type: ignore[dict-item]


def test_states_are_numbered_as_on_the_wire() -> None:
    assert STATES[dockermachine.RUNNING] == "Running"
    assert STATES[dockermachine.NOT_FOUND] == "Not Found"
    assert (dockermachine.NONE, dockermachine.STOPPED, dockermachine.ERROR) == (0, 4, 7)
    assert len(STATES) == 10


def test_the_methods_are_those_that_hosts_call() -> None:
    """`Upgrade` exists in hosts only; no plugin has it."""
    getters = "IP IPv6 MachineName SSHHostname SSHKeyPath SSHPort SSHUsername State URL Version CreateFlags ConfigRaw"
    orders = (
        "Heartbeat Close SetConfigRaw SetConfigFromFlags PreCreateCheck Create Remove Start Stop Restart Kill"
    )
    of_go = {f"Get{name}" for name in getters.split()} | set(orders.split()) | {"DriverName"}

    assert {name for name in METHODS if not name.startswith("Windrow")} == of_go


@pytest.mark.parametrize(
    ("flag", "field"),
    [
        ("harvester-vm-namespace", "vmNamespace"),
        ("harvester-enable-efi", "enableEfi"),
        ("harvester-vgpu-info", "vgpuInfo"),
        ("cloud9-region", "region"),
    ],
)
def test_a_field_is_the_flag_without_its_first_word(flag: str, field: str) -> None:
    assert config_field_of(flag) == field
