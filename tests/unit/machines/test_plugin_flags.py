"""Machine config fields become create flags, as Rancher and rancher-machine map them."""

from __future__ import annotations

from typing import Any

import pytest

from windrow.machines.plugin.flags import find_user_data_flag, plan_flags
from windrow.machines.port import Problem
from windrow.protocols.dockermachine import Flag


def a_flag(name: str, kind: Any = "string", default: Any = "") -> Flag:
    return Flag(kind, name, "usage", name.upper(), default)


FLAGS = (
    a_flag("cloud9-region", default="north"),
    a_flag("cloud9-root-size", "int", 16),
    a_flag("cloud9-spot", "bool", False),
    a_flag("cloud9-tags", "strings", ("a",)),
    a_flag("cloud9-secret-key"),
    a_flag("cloud9-userdata"),
)


def planned(credential: dict[str, str] | None = None, **options: Any) -> tuple[dict[str, Any], list[Problem]]:
    return plan_flags("cloud9", FLAGS, options, credential or {}, "/run/user-data")


def test_every_flag_is_sent_and_those_of_the_host_too() -> None:
    values, problems = planned()

    assert problems == []
    assert values["cloud9-region"] == "north"
    assert values["cloud9-root-size"] == 16
    assert values["cloud9-spot"] is False
    assert values["cloud9-tags"] == ["a"]
    assert values["swarm-master"] is False
    assert values["driver"] == "cloud9"


def test_the_user_data_path_goes_to_the_drivers_flag() -> None:
    assert planned()[0]["cloud9-userdata"] == "/run/user-data"


@pytest.mark.parametrize("name", ["x-user-data", "x-userdata", "x-custom-data-file", "x-cloud-config"])
def test_the_first_flag_with_such_a_name_takes_user_data(name: str) -> None:
    flags = (a_flag("x-a"), a_flag(name), a_flag("x-userdata2"))
    found = find_user_data_flag(flags)
    assert found is not None
    assert found.name == name


def test_a_driver_without_one_is_refused_by_name() -> None:
    _, (problem,) = plan_flags("cloud9", FLAGS[:-1], {}, {}, "/run/user-data")
    assert "node driver cloud9" in problem.message
    assert "SSH provisioning" in problem.message


def test_values_have_the_type_of_their_flag() -> None:
    values, problems = planned(rootSize="32", spot="true", tags=["x", 2], region={"a": [1]})

    assert problems == []
    assert values["cloud9-root-size"] == 32
    assert values["cloud9-spot"] is True
    assert values["cloud9-tags"] == ["x", "2"]
    assert values["cloud9-region"] == '{"a":[1]}'


def test_all_problems_are_reported_together() -> None:
    _, problems = planned(rootSize="big", spot="maybe", tags={"a": 1}, colour="red", Region="south")

    assert [problem.field for problem in problems] == ["rootSize", "spot", "tags", "colour", "Region"]
    assert problems[-1].hint == "write it as region"


def test_fields_of_kubernetes_and_rancher_are_no_options() -> None:
    fields = {"metadata": {}, "kind": "Cloud9Config", "common": {"labels": {}}, "region": None, "spot": ""}
    values, problems = planned(**fields)
    assert problems == []
    assert (values["cloud9-region"], values["cloud9-spot"]) == ("north", False)


def test_a_driver_gets_the_flags_that_rancher_machine_s_own_command_has() -> None:
    own = {flag.name for flag in FLAGS}
    assert {name: value for name, value in planned()[0].items() if name not in own} == {
        "driver": "cloud9",
        "engine-install-url": "https://get.docker.com",
        "engine-storage-driver": "",
        "swarm": False,
        "swarm-image": "swarm:latest",
        "swarm-master": False,
        "swarm-discovery": "",
        "swarm-strategy": "spread",
        "swarm-host": "tcp://0.0.0.0:3376",
        "swarm-addr": "",
        "swarm-experimental": False,
        "custom-install-script": "",
        "hostname-override": "",
    }


@pytest.mark.parametrize(
    ("tags", "read"),
    [
        ("x", ["x"]),
        (["x", 2], ["x", "2"]),
        ([], []),
        ({"a": 1}, None),
        ([{"a": 1}], None),
        (["x", None], None),
    ],
)
def test_a_list_of_text_may_be_one_text_and_has_numbers_as_text(tags: Any, read: list[str] | None) -> None:
    values, problems = planned(tags=tags)
    assert values["cloud9-tags"] == (read if read is not None else ["a"])
    assert [problem.field for problem in problems] == ([] if read is not None else ["tags"])


@pytest.mark.parametrize(
    ("value", "text"),
    [(True, "true"), (False, "false"), (2, "2"), (1.5, "1.5"), (["a"], '["a"]'), ({"b": None}, '{"b":null}')],
)
def test_text_is_made_of_any_value(value: Any, text: str) -> None:
    assert planned(region=value)[0]["cloud9-region"] == text


def test_nothing_but_the_credential_sets_its_fields() -> None:
    values, problems = planned({"secretKey": "from-the-secret"}, secretKey="from-the-config")

    assert problems == []
    assert values["cloud9-secret-key"] == "from-the-secret"


def test_options_cannot_set_the_user_data_flag() -> None:
    _, (problem,) = planned(userdata="/etc/passwd")
    assert problem.field == "userdata"


def test_sizes_of_our_own_driver_may_be_quantities() -> None:
    flags = (a_flag("harvester-memory-size", "int", 4), a_flag("harvester-cloud-config"))
    values, problems = plan_flags("harvester", flags, {"memorySize": "8Gi"}, {}, "/f")
    assert (values["harvester-memory-size"], problems) == (8, [])

    flags = (a_flag("harvester-memory-size"), a_flag("harvester-cloud-config"))  # of another release
    values, problems = plan_flags("harvester", flags, {"memorySize": "8Gi"}, {}, "/f")
    assert (values["harvester-memory-size"], problems) == ("8Gi", [])


def test_a_driver_that_wants_the_clusters_name_gets_it() -> None:
    flags = (a_flag("harvester-cluster-name"), a_flag("harvester-cloud-config"))
    values, _ = plan_flags("harvester", flags, {}, {}, "/f", cluster_name="orchard")
    assert values["harvester-cluster-name"] == "orchard"
