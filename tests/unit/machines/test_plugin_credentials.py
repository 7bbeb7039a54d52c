"""What a plugin is handed of a credential, and how its account is told."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from windrow.client.transport import Transport
from windrow.core.formats.json import dumps
from windrow.kubernetes.kubeconfig import ClientConfig, render_kubeconfig
from windrow.kubernetes.requests import Reply, Request
from windrow.machines.plugin.credentials import (
    CredentialResolver,
    ResolvedCredential,
    StartState,
    account_digest,
)
from windrow.machines.port import InfrastructureUnknown


async def keys(fields: Mapping[str, str]) -> ResolvedCredential:
    async def given(driver: str, credential: str) -> Mapping[str, str]:
        return fields

    async def no_kubeconfig(credential: str) -> str:
        raise AssertionError

    def no_connection(access: ClientConfig) -> Transport:
        raise AssertionError

    return await CredentialResolver(no_kubeconfig, given, no_connection).resolve("noop", "ns:cc")


async def test_fields_are_handed_over_as_the_drivers_variables() -> None:
    assert (await keys({"accessToken": "t", "empty": ""})).env == {"NOOP_ACCESS_TOKEN": "t"}


@pytest.mark.parametrize("length", [100, 119_000, 125_000, 200_000])
async def test_what_no_variable_can_hold_comes_by_flag_alone(length: int) -> None:
    found = await keys({"certificate": "x" * length})
    assert await (await asyncio.create_subprocess_exec("/bin/true", env=dict(found.env))).wait() == 0
    assert found.fields["certificate"] == "x" * length
    assert ("NOOP_CERTIFICATE" in found.env) is (length < 120_000)


def test_an_account_is_identified_by_fields_that_are_no_secrets() -> None:
    first = account_digest("noop", {"username": "u", "password": "old"})
    assert account_digest("noop", {"username": "u", "password": "new"}) == first
    assert account_digest("noop", {"username": "w", "password": "old"}) != first


def test_the_digest_of_an_account_is_as_machines_have_it_recorded() -> None:
    assert account_digest("noop", {"username": "u", "password": "p"}) == "11df19d8ef12620cea3b1eb694248ed9"


def test_where_all_is_secret_a_renewed_one_may_be_another_account() -> None:
    assert account_digest("noop", {"accessToken": "old"}) != account_digest("noop", {"accessToken": "new"})


async def test_a_credential_may_name_its_other_account_digests() -> None:
    before = await keys({"accessToken": "old"})
    after = await keys({"accessToken": "new", "windrowSameAccountAs": before.account})
    assert after.is_for_account(before.account)
    assert after.is_for_account("")
    assert not after.is_for_account("another")
    assert not (await keys({"accessToken": "new"})).is_for_account(before.account)
    assert set(after.fields) == {"accessToken"}
    assert set(after.env) == {"NOOP_ACCESS_TOKEN"}


async def test_no_representation_of_a_credential_shows_what_it_holds() -> None:
    assert "s3cret" not in repr(await keys({"accessToken": "s3cret"}))


async def test_a_credential_that_cannot_be_read_is_reported_with_a_hint() -> None:
    unknown = InfrastructureUnknown("the manager stops", "the next one does it")

    def failing(error: Exception) -> CredentialResolver:
        async def fields(driver: str, credential: str) -> Mapping[str, str]:
            raise error

        return a_resolver({}, fields)

    with pytest.raises(
        InfrastructureUnknown, match="credential Secret ns/cc cannot be read: no such"
    ) as raised:
        await failing(LookupError("no such Secret")).resolve("noop", "ns:cc")
    assert raised.value.hint == "create that Secret with the fields of driver noop, or name another"
    with pytest.raises(InfrastructureUnknown) as raised:
        await failing(unknown).resolve("noop", "ns:cc")
    assert raised.value is unknown


# -- what a VM on Harvester starts with


class Holds:
    """A Harvester that holds these objects."""

    def __init__(self, objects: Mapping[str, Mapping[str, Any]]) -> None:
        self._objects = objects

    async def send(self, request: Request) -> Reply:
        kind, name = request.path.split("/")[-2:]
        if (found := self._objects.get(f"{kind}/{name}")) is not None:
            return Reply(200, dumps(found))
        gone = {"kind": "Status", "code": 404, "reason": "NotFound", "details": {"name": name}}
        return Reply(404, dumps({**gone, "message": f'{kind} "{name}" not found'}))

    def stream(self, request: Request) -> Any:
        raise AssertionError

    async def aclose(self) -> None:
        pass


def a_resolver(objects: Mapping[str, Mapping[str, Any]], fields: Any = None) -> CredentialResolver:
    async def kubeconfig(credential: str) -> str:
        return render_kubeconfig(ClientConfig(server="https://harvester.example", token="t"), "harvester")

    return CredentialResolver(kubeconfig, fields, lambda _: Holds(objects))


def starting_vm(**metadata: Any) -> dict[str, Any]:
    source = {"secretRef": {"name": "m-user"}, "networkDataSecretRef": {"name": "m-net"}}
    volumes = [{"name": "cloud-init", "cloudInitNoCloud": source}]
    return {
        "metadata": {"name": "m", "namespace": "vms", "uid": "vm-1", **metadata},
        "spec": {"runStrategy": "RerunOnFailure", "template": {"spec": {"volumes": volumes}}},
    }


def instance_of(vm_uid: str, phase: str) -> dict[str, Any]:
    owner = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "name": "m", "uid": vm_uid}
    metadata = {
        "name": "m",
        "namespace": "vms",
        "uid": "vmi-1",
        "ownerReferences": [owner | {"controller": True}],
    }
    return {"metadata": metadata, "status": {"phase": phase}}


SECRETS: dict[str, Any] = {
    f"secrets/{name}": {"metadata": {"name": name, "namespace": "vms"}} for name in ("m-user", "m-net")
}
HAS_RUN = "has run, for its VirtualMachineInstance has been Running"


@pytest.mark.parametrize(
    ("objects", "missing", "run"),
    [
        ({"virtualmachines/m": starting_vm()}, ("m-net", "m-user"), ""),
        ({"virtualmachines/m": starting_vm(), **SECRETS}, (), ""),
        (
            {"virtualmachines/m": starting_vm(), "virtualmachineinstances/m": instance_of("vm-1", "Running")},
            ("m-net", "m-user"),
            HAS_RUN,
        ),
        (
            {"virtualmachines/m": starting_vm(), "virtualmachineinstances/m": instance_of("vm-1", "Pending")},
            ("m-net", "m-user"),
            "",
        ),
        # The instance of an earlier VM of the name.
        (
            {"virtualmachines/m": starting_vm(), "virtualmachineinstances/m": instance_of("vm-0", "Running")},
            ("m-net", "m-user"),
            "",
        ),
        # One that is being deleted is nothing to lose.
        (
            {
                "virtualmachines/m": starting_vm(deletionTimestamp="2026-01-01T12:00:00Z"),
                "virtualmachineinstances/m": instance_of("vm-1", "Running"),
            },
            ("m-net", "m-user"),
            "",
        ),
    ],
)
async def test_of_a_vm_is_told_which_secrets_it_lacks_and_whether_it_has_run(
    objects: Mapping[str, Any], missing: tuple[str, ...], run: str
) -> None:
    found = await a_resolver(objects).observe_start("ns:cc", "m", "vms")
    assert found == StartState("vms/m", missing, run)


async def test_where_there_is_no_vm_there_is_nothing_that_starts() -> None:
    assert await a_resolver({}).observe_start("ns:cc", "m", "vms") is None


async def test_a_driver_of_harvester_gets_the_kubeconfig_of_the_credential() -> None:
    place = {"namespaces/kube-system": {"metadata": {"name": "kube-system", "uid": "harvester-1"}}}
    found = await a_resolver(place).resolve("harvester", "ns:cc")
    assert found.harvester_uid == "harvester-1"
    assert found.fields.keys() == {"kubeconfigContent"}
    assert found.env == {"HARVESTER_KUBECONFIG_CONTENT": found.fields["kubeconfigContent"]}
    assert "https://harvester.example" in found.fields["kubeconfigContent"]
