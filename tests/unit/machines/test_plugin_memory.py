"""A memory holds no credential and no path of this host, and the driver gets back what it had."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from windrow.machines.plugin_memory import Seal
from windrow.machines.port import stand_in

STORE = Path("/var/lib/windrow/machines/uid-1")


def a_seal(driver: str = "noop", **credential: str) -> Seal:
    return Seal(driver, credential, STORE, STORE / "user-data")


def test_what_came_from_the_credential_is_named_and_put_back() -> None:
    config = {
        "Key": "s3cret-key",
        "Deep": [{"url": "https://u:s3cret-key@host/"}],
        "Basic": "czNjcmV0LWtleQ==",
    }
    sealed = a_seal(key="s3cret-key").close(config)

    assert "s3cret-key" not in str(sealed)
    assert "czNjcmV0" not in str(sealed)
    assert a_seal(key="s3cret-key").open(sealed) == {**config, "StorePath": str(STORE)}


def test_a_rotated_credential_takes_effect() -> None:
    sealed = a_seal(key="s3cret-key").close({"Key": "s3cret-key"})
    assert a_seal(key="another").open(sealed)["Key"] == "another"


def test_a_short_value_is_only_taken_as_a_whole() -> None:
    sealed = a_seal(zone="a").close({"Zone": "a", "Name": "banana"})
    assert sealed["Name"] == "banana"
    assert a_seal(zone="b").open(sealed)["Zone"] == "b"


def test_paths_of_this_host_are_left_out_and_set_anew() -> None:
    config = {
        "StorePath": str(STORE),
        "SSHKeyPath": f"{STORE}/machines/m/id_rsa",
        "File": f"{STORE}/user-data",
    }
    sealed = a_seal().close(config)

    assert sealed == {"StorePath": "", "SSHKeyPath": "", "File": ""}
    assert a_seal().open(sealed)["StorePath"] == str(STORE)


def test_a_kubeconfig_is_left_out_as_a_whole() -> None:
    seal = a_seal("harvester", kubeconfigContent="apiVersion: v1\n")
    sealed = seal.close({"KubeConfigContent": "decoded differently", "CPU": 2})

    assert sealed == {"KubeConfigContent": "", "CPU": 2}
    assert seal.open(sealed)["KubeConfigContent"] == "apiVersion: v1\n"


def test_a_foreign_driver_does_not_see_our_keys_and_our_own_does() -> None:
    memory = {"WindrowMachineUID": "uid-1", "Id": "i-1"}
    assert "WindrowMachineUID" not in a_seal().open(memory)
    assert a_seal("harvester").open(memory)["WindrowMachineUID"] == "uid-1"


def test_a_machine_that_the_go_driver_made_is_not_looked_for_by_marks() -> None:
    marks = {"WindrowMachineUID": "uid-1", "WindrowClusterUID": "c-1"}
    opened = a_seal("harvester").open({**marks, "WindrowVMUID": stand_in("harvester", "uid-1")})
    assert {opened[key] for key in (*marks, "WindrowVMUID")} == {""}

    made = {**marks, "WindrowVMUID": "0c7a"}
    assert a_seal("harvester").open(made).items() >= made.items()


values: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(config=st.dictionaries(st.text(), values), secret=st.text(min_size=8))
def test_no_configuration_keeps_a_long_secret_in_its_values(config: dict[str, Any], secret: str) -> None:
    config = {**config, "Key": secret, "In": f"<{secret}>", "B": base64.b64encode(secret.encode()).decode()}
    seal = a_seal(key=secret)
    sealed = seal.close(config)

    assert sealed["Key"] != secret
    opened = seal.open(sealed)
    assert {key: opened[key] for key in ("Key", "In", "B")} == {
        key: config[key] for key in ("Key", "In", "B")
    }
