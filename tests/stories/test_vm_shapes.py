"""What the emulator writes into KubeVirt objects, held against KubeVirt's own definitions where those are at hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.support.clock import run_driven

from windrow.emulator import kinds

from .harvester_rig import a_harvester, boot, vm_ref

REAL = next(
    (
        found
        for parent in Path(__file__).parents
        if (found := parent / "shared" / "crds" / "kubevirt.io_definitions.json").is_file()
    ),
    None,
)


@pytest.mark.skipif(REAL is None, reason="KubeVirt's definitions are not beside this repository")
def test_a_running_machine_has_no_field_that_kubevirt_does_not_know():
    definitions = json.loads(REAL.read_text())["definitions"]

    async def story():
        async with a_harvester() as harvester:
            vmi = await boot(harvester)
            return await harvester.api.local().get(vm_ref()), vmi

    vm, vmi = run_driven(story())
    assert list(_faults(vm, "v1.VirtualMachine", definitions, "vm")) == []
    assert list(_faults(vmi, "v1.VirtualMachineInstance", definitions, "vmi")) == []


def test_the_watcher_would_notice_a_wrong_field():
    definitions = {"v1.A": {"properties": {"known": {"type": "string"}}, "required": ["known"]}}

    assert list(_faults({"other": 1}, "v1.A", definitions, "a")) == [
        "a.known is missing",
        "a.other is unknown",
    ]
    assert list(_faults({"known": 1}, "v1.A", definitions, "a")) == ["a.known is no string"]


_TYPES = {"string": str, "integer": int, "boolean": bool, "array": list, "object": dict}


def _faults(value, definition, definitions, path):
    yield from _check(value, definitions[definition], definitions, path)


def _check(value, schema, definitions, path):
    reference = schema.get("$ref") or next(
        (one["$ref"] for one in schema.get("allOf", ()) if "$ref" in one), None
    )
    if reference:
        name = reference.rsplit("/", 1)[1]
        if name in definitions and not name.startswith("k8s.io.apimachinery"):
            yield from _check(value, definitions[name], definitions, path)
        return
    kind = schema.get("type")
    wanted = _TYPES.get(kind) if isinstance(kind, str) else None
    if wanted and value is not None and not isinstance(value, wanted):
        yield f"{path} is no {kind}"
        return
    if "properties" in schema and isinstance(value, dict):
        for name in schema.get("required") or ():
            if name not in value:
                yield f"{path}.{name} is missing"
        for name, below in value.items():
            if name not in schema["properties"]:
                yield f"{path}.{name} is unknown"
            else:
                yield from _check(below, schema["properties"][name], definitions, f"{path}.{name}")
    if "items" in schema and isinstance(value, list):
        for place, below in enumerate(value):
            yield from _check(below, schema["items"], definitions, f"{path}[{place}]")


def test_the_whole_life_of_a_machine_costs_as_many_versions_as_a_real_one():
    async def story():
        async with a_harvester() as harvester:
            line = harvester.api.local()
            before = await line.list(kinds.VM)
            assert not before
            seen = {"VirtualMachine": 0, "VirtualMachineInstance": 0}
            async with line.watch(kinds.VM) as vms, line.watch(kinds.VMI) as vmis:
                await boot(harvester)
                await harvester.clock.sleep(60)
                for events in (vms, vmis):
                    await _count(events, seen)
            return seen

    # Reference 05 §8.3: 6-12 versions of a VM, 10-25 of an instance in the first two minutes.
    seen = run_driven(story())
    assert 5 <= seen["VirtualMachine"] <= 14, seen
    assert 5 <= seen["VirtualMachineInstance"] <= 25, seen


async def _count(events, seen):
    import asyncio

    while True:
        try:
            async with asyncio.timeout(1):
                event = await anext(events)
        except TimeoutError:
            return
        seen[event.object["kind"]] += 1
