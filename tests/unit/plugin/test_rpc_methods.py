from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any

import pytest

from windrow.core.formats.json import dumps, loads
from windrow.core.rng import Rng
from windrow.nodedriver.options import OPTIONS
from windrow.plugin.driver import Driver
from windrow.plugin.environment import LocalFiles, ProcessEnv
from windrow.plugin.rpc_methods import EXTENSIONS, METHODS, RpcMethods
from windrow.plugin.rpc_server import CallFailed
from windrow.protocols import dockermachine as wire
from windrow.protocols.gob import Encoder


class Methods:
    def __init__(self, *argv: str, **env: str) -> None:
        self.reported: list[str] = []
        self.driver = Driver(
            ProcessEnv(
                argv=argv,
                env=env,
                now=lambda: datetime(2026, 1, 1, tzinfo=UTC),
                monotonic=time.monotonic,
                sleep=lambda seconds: None,
                rng=Rng(1),
                log=lambda text: None,
                files=LocalFiles(Rng(1)),
            )
        )
        self._methods = RpcMethods(lambda: self.driver, self.reported.append)

    def call(self, method: str, argument: Any = None, service: str = wire.SERVICE) -> Any:
        kind, value = self._methods(f"{service}.{method}", {} if argument is None else argument)
        Encoder(wire.REGISTRY).encode(kind, value)  # what cannot be sent is no answer
        return value

    def refusal(self, method: str, argument: Any = None, service: str = wire.SERVICE) -> str:
        with pytest.raises(CallFailed) as failed:
            self.call(method, argument, service)
        return str(failed.value)


def test_every_method_of_the_protocol_is_there_and_no_other():
    assert set(METHODS) == set(wire.METHODS)
    assert set(EXTENSIONS) == {name for name in wire.METHODS if name.startswith("Windrow")}


@pytest.mark.parametrize("service", [wire.SERVICE, wire.LEGACY_SERVICE])
def test_both_names_of_the_service_are_served(service: str):
    assert Methods().call("GetVersion", service=service) == 1


@pytest.mark.parametrize(
    ("called", "said"),
    [
        ("GetVersion", "rpc: service/method request ill-formed: GetVersion"),
        ("", "rpc: service/method request ill-formed: "),
        ("Other.GetVersion", "rpc: can't find service Other.GetVersion"),
        ("RPCServerDriver.Upgrade", "rpc: can't find method RPCServerDriver.Upgrade"),
        ("RPCServerDriver.x.GetVersion", "rpc: can't find service RPCServerDriver.x.GetVersion"),
        ("RPCServerDriver.", "rpc: can't find method RPCServerDriver."),
    ],
)
def test_what_is_not_there_is_refused_in_go_s_words(called: str, said: str):
    with pytest.raises(CallFailed) as failed:
        RpcMethods(lambda: Methods().driver, print)(called, {})
    assert str(failed.value) == said


def test_getters_answer_before_anything_is_set():
    host = Methods()

    assert host.call("DriverName") == "harvester"
    assert host.call("GetMachineName") == "machine"
    assert host.call("GetSSHPort") == 22
    assert host.call("GetSSHUsername") == "root"
    assert [flag.name for flag in wire.read_flags(host.call("GetCreateFlags"))] == [
        each.flag for each in OPTIONS
    ]


def test_what_getters_fill_in_is_part_of_the_saved_configuration():
    host = Methods()
    host.call("SetConfigRaw", dumps({"MachineName": "m", "StorePath": "/store"}))
    assert loads(host.call("GetConfigRaw"))["SSHKeyPath"] == ""

    assert host.call("GetSSHKeyPath") == "/store/machines/m/id_rsa"
    assert loads(host.call("GetConfigRaw"))["SSHKeyPath"] == "/store/machines/m/id_rsa"


def test_a_configuration_that_cannot_be_read_changes_nothing():
    host = Methods()
    host.call("SetConfigRaw", dumps({"MachineName": "m"}))
    before = host.call("GetConfigRaw")

    assert host.refusal("SetConfigRaw", b'{"CPU": "x"}').startswith(
        "error unmarshalling driver config JSON: "
    )
    assert host.call("GetConfigRaw") == before


@pytest.mark.parametrize(
    ("argv", "env", "kubeconfig"),
    [
        ((), {}, "stored"),
        (("rm", "--harvester-kubeconfig-content", "given", "m"), {}, "given"),
        (
            ("rm", "--harvester-kubeconfig-content=given", "m"),
            {"HARVESTER_KUBECONFIG_CONTENT": "env"},
            "given",
        ),
        ((), {"HARVESTER_KUBECONFIG_CONTENT": "env"}, "env"),
        ((), {"HARVESTER_KUBECONFIG_CONTENT": ""}, "stored"),
    ],
)
def test_a_renewed_kubeconfig_takes_the_place_of_the_stored_one(
    argv: tuple[str, ...], env: dict[str, str], kubeconfig: str
):
    host = Methods(*argv, **env)
    host.call("SetConfigRaw", dumps({"KubeConfigContent": "stored"}))

    assert loads(host.call("GetConfigRaw"))["KubeConfigContent"] == kubeconfig


def test_a_machine_gets_its_uid_with_its_flags_and_keeps_it():
    host = Methods()
    options = wire.write_options(
        {
            "harvester-image-name": "jammy",
            "harvester-network-name": "vlan50",
            "harvester-disk-size": 10,
            "harvester-cpu-count": 2,
            "harvester-memory-size": 4,
            "harvester-vm-namespace": "default",
            "harvester-ssh-user": "root",
            "harvester-ssh-port": 22,
            "harvester-reserved-memory-size": -1,
        }
    )
    host.call("SetConfigRaw", dumps({"MachineName": "m-1"}))

    host.call("SetConfigFromFlags", options)
    uid = loads(host.call("GetConfigRaw"))["WindrowMachineUID"]
    host.call("SetConfigFromFlags", options)

    assert uid
    assert loads(host.call("GetConfigRaw"))["WindrowMachineUID"] == uid


@pytest.mark.parametrize(
    "method", ["GetState", "GetIP", "GetURL", "PreCreateCheck", "Create", "Remove", "Start"]
)
def test_without_a_kubeconfig_nothing_is_done_and_no_machine_is_gone(method: str):
    host = Methods(KUBECONFIG="/etc/kubeconfig")
    said = host.refusal(method)

    assert "WINDROW_DRIVER_KUBECONFIG" in said
    assert "not found" not in said
    assert host.reported == []


def test_a_fault_of_ours_is_told_shortly_and_reported(monkeypatch: pytest.MonkeyPatch):
    host = Methods()
    monkeypatch.setattr(Driver, "_run", lambda driver, machine, start: 1 / 0)

    said = host.refusal("GetState")

    assert said.startswith("an error in the driver itself, in GetState: ZeroDivisionError at ")
    assert host.reported == [said]
