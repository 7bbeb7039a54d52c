"""What a plugin is handed of a credential, and how its account is told."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from windrow.client.transport import Transport
from windrow.kubernetes.kubeconfig import ClientConfig
from windrow.machines.plugin.credentials import CredentialResolver, ResolvedCredential, account_digest


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
