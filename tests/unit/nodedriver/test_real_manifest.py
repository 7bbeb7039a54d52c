"""A HarvesterConfig that a real Rancher wrote is understood whole, where the dump lies beside the repository."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.harvester.test_schemas import SCHEMAS, complaints

from windrow.core.formats.yaml import load, load_all
from windrow.harvester.vms import build_vm
from windrow.nodedriver.config import read_fields
from windrow.nodedriver.options import BY_FIELD
from windrow.nodedriver.user_data import render_user_data
from windrow.nodedriver.validate.rules import find_problems
from windrow.nodedriver.vm.plan import plan_vm

DUMP = Path(__file__).parents[4] / "shared" / "manifests" / "rancher-rke2-one-node.yaml"

pytestmark = pytest.mark.skipif(not DUMP.exists(), reason=f"no real manifest at {DUMP}")


def test_every_field_is_an_option_and_the_machine_is_sound() -> None:
    [raw] = [found for found in load_all(DUMP.read_text()) if found["kind"] == "HarvesterConfig"]
    fields = {key: value for key, value in raw.items() if key not in ("apiVersion", "kind", "metadata")}
    assert fields.keys() <= BY_FIELD.keys()

    configuration, problems = read_fields(fields)
    configuration = replace(
        configuration, machine_name="51-pool1-wfw6m-x2x2x", cluster_name="51", machine_uid="m"
    )
    assert [*problems, *find_problems(configuration)] == []

    user_data = load(render_user_data(configuration, "runcmd: [install]\n", agent=True))
    assert user_data["packages"] == ["qemu-guest-agent", "iptables"]
    assert user_data["runcmd"] == [["systemctl", "enable", "--now", "qemu-guest-agent.service"], "install"]

    vm = build_vm(plan_vm(configuration, {disk.image: "lh" for disk in configuration.disks}))
    if SCHEMAS.exists():
        assert complaints(vm) == []
