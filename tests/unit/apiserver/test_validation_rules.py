"""`x-kubernetes-validations`: what says that it never changes does not; another rule is told to be not evaluated."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.apiserver.validation_rules import FIELDS, NEVER, answers_to_changes, stones

from windrow.apiserver.server import ApiServer
from windrow.app.embedded import install_crds
from windrow.client.client import Client
from windrow.clusters.api.kinds import MACHINE
from windrow.core.formats.fastjson import dumps
from windrow.kubernetes.errors import KubeError
from windrow.kubernetes.objects import Raw, new_object
from windrow.kubernetes.requests import Request
from windrow.kubernetes.resources import CRD

SHAPE = 'spec.shape: Invalid value: "object": it is carved'
COLOUR = 'spec.colour: Invalid value: "string": failed rule: self == oldSelf'


async def test_what_never_changes_does_not(server: ApiServer) -> None:
    client = Client(server.local())
    await client.create(CRD, stones())
    found = await answers_to_changes(client)

    refused = {name: text for name, text in found.items() if isinstance(text, str)}
    assert sorted(set(found) - set(refused)) == ["a default", "another field", "removed", "same"]
    assert refused["a text"] == f'422 Stone.example.io "s7" is invalid: {COLOUR}'
    assert refused["an item"] == f'422 Stone.example.io "s3" is invalid: {SHAPE}'
    assert COLOUR in refused["beside another"]
    assert found["another field"]["weight"] == 2


async def test_no_role_changes_the_spec_of_a_machine(server: ApiServer) -> None:
    """It names the VM, the credential and the Cluster that the manager acts on."""
    client = Client(server.local())
    await install_crds(client)
    spec: Raw = {
        "clusterName": "c",
        "clusterUID": "u",
        "pool": "p",
        "roles": ["worker"],
        "options": {},
        "credential": "team-a:cc",
        "version": "v1.34.3+rke2r1",
    }
    ref = MACHINE.ref("m", "default")
    await client.create(MACHINE, new_object(MACHINE, "m", "default", spec=spec))

    for change in ({"credential": "team-b:cc"}, {"machineUID": "of-another"}, {"clusterUID": "v"}):
        with pytest.raises(KubeError, match="a Machine's spec never changes") as refused:
            await client.patch(ref, {"spec": change})
        assert refused.value.status == 422
    await client.patch(ref, {"metadata": {"labels": {"a": "b"}}})
    assert (await client.get(ref))["spec"] == spec


@pytest.mark.parametrize(
    ("field", "told"),
    [
        ({"type": "integer", "x-kubernetes-validations": [{"rule": "self > 3"}]}, "self > 3"),
        (
            {"type": "string", "x-kubernetes-validations": [{**NEVER[0], "optionalOldSelf": True}]},
            "self == oldSelf",
        ),
        (
            {"type": "array", "items": {"type": "string", "x-kubernetes-validations": NEVER}},
            "self == oldSelf",
        ),
        (FIELDS["shape"], ""),
    ],
)
async def test_a_rule_that_is_not_evaluated_is_told(server: ApiServer, field: Any, told: str) -> None:
    body = stones({"f": field})
    reply = await server.local().send(Request("POST", CRD.path(), body=dumps(body)))

    warned = reply.headers.get("Warning", "")
    assert reply.status == 201
    assert (f"rule: {told} is not evaluated by this server" in warned) if told else not warned
