"""What the manager logs while a cluster starts, loses a machine and goes: its objects as fields, and no secret."""

from __future__ import annotations

import base64
import json
import logging
from collections.abc import Iterator

import pytest
from tests.stories.cluster_rig import ALL, CREDENTIAL, a_pool, gone, machines_of
from tests.stories.test_cluster_life import Story, a_story
from tests.support.clock import run_driven

from windrow.clusters.api.references import parse_secret_reference
from windrow.core.logs import JsonFormatter
from windrow.emulator.faults import INTERNAL_ERROR, Fault
from windrow.harvester.resources import VM
from windrow.kubernetes.objects import name_of
from windrow.kubernetes.resources import SECRET

# Values of Secrets that are no secret.
MIN_LENGTH = 12
MANAGER = ("windrow.clusters", "windrow.controller", "windrow.client.events")


class Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(JsonFormatter())
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))


@pytest.fixture
def log() -> Iterator[Lines]:
    handler, root = Lines(), logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    yield handler
    root.removeHandler(handler)
    root.setLevel(level)


async def list_secrets(it: Story) -> set[str]:
    """Every value of every Secret, of the management API and of Harvester, and its lines."""
    found: set[str] = set()
    for client in (it.sim.management_client, it.sim.harvester_client):
        for raw in await client.list(SECRET):
            for value in (raw.get("data") or {}).values():
                text = base64.b64decode(value).decode("utf-8", "replace")
                found |= {value, text, *(line.strip() for line in text.splitlines())}
    return {one for one in found if len(one) >= MIN_LENGTH and is_secret(one)}


def is_secret(line: str) -> bool:
    """Whether a line of a Secret is more than a word of its format: a key, a token, a certificate or a part of one."""
    return (
        not line.startswith(("-----", "#", "https://"))
        and any(letter.isdigit() for letter in line)
        and " " not in line
    )


def test_the_log_of_a_cluster_has_its_objects_as_fields_and_no_secret(log: Lines) -> None:
    secrets: set[str] = set()

    async def story() -> None:
        async with a_story(a_pool("all", 1, ALL), a_pool("workers", 1)) as it:
            fault = Fault(INTERNAL_ERROR, verbs=frozenset({"create"}), times=30)
            it.sim.harvester.faults.add(fault)
            await it.stage.wait_for_settled()
            secrets.update(await list_secrets(it))
            credential = parse_secret_reference(CREDENTIAL)
            assert credential is not None
            lost = name_of((await machines_of(it.sim, it.ref, "workers"))[0])
            await it.sim.harvester_client.delete(VM.ref(lost, "default"))
            await it.stage.wait_for_settled(without=lost)
            secrets.update(await list_secrets(it))
            await it.sim.management_client.delete(it.ref)
            await gone(it.sim, it.ref)

    run_driven(story())

    lines = [json.loads(line) for line in log.lines]
    actions = [line for line in lines if line["logger"] == "windrow.clusters.execute.executor"]
    assert len(actions) > 20
    assert all(line["cluster"] == "fleet-default/orchard" for line in actions)
    assert all(line["namespace"] == "fleet-default" and "reason" in line for line in actions)
    assert any("machine" in line for line in actions)
    unrelated = [line for line in lines if line["logger"].startswith(MANAGER) and not names_an_object(line)]
    assert unrelated == []
    assert len(secrets) > 20
    text = "\n".join(log.lines)
    assert [one for one in secrets if one in text] == []


def names_an_object(line: dict[str, object]) -> bool:
    keys = {"cluster", "machine", "key", "object", "resource", "secret", "lease", "namespace", "node"}
    return bool(keys & line.keys())
