"""Observe an addon account on Harvester, carry out its plan, wait for its token. Whatever ends half-way is repeated whole."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime

from windrow.app.addon.account import SELECTOR, AddonAccount, list_tokens
from windrow.app.addon.plan import (
    Action,
    AddonRefused,
    AddonState,
    Create,
    Delete,
    Mark,
    list_obstacles,
    list_wider_rights,
    plan_deletion,
    plan_grant,
    plan_revocation,
)
from windrow.bootstrap.guest_account import CSI_DRIVER_ROLE, VIP, find_access, find_vip_server
from windrow.client.client import Client
from windrow.client.informer import make_watcher, watching
from windrow.core.clock import Clock
from windrow.core.errors import UserError
from windrow.harvester.names import ADDON_ACCOUNT
from windrow.kubernetes.errors import AlreadyExists, Conflict, Forbidden, NotFound
from windrow.kubernetes.kubeconfig import ClientConfig, render_kubeconfig
from windrow.kubernetes.objects import Raw, annotations_of, nested, time_of
from windrow.kubernetes.resources import (
    CLUSTER_ROLE_BINDING,
    NAMESPACE,
    ROLE,
    SECRET,
    SERVICE_ACCOUNT,
    ObjectRef,
    ref_of,
)

# How often a plan is made anew because others change the same objects meanwhile.
MAX_ROUNDS = 5
TOKEN_WAIT_S = 30.0

OnAction = Callable[[Action], None]


class AddonFailed(UserError):
    """The account is not whole; the same command goes on with what is missing."""


@dataclass(frozen=True, slots=True)
class Granted:
    """The credential of an account: `kubeconfig` with its newest token. `earlier` tokens are valid, too; the ClusterRoleBindings
    `wider` give the account more than this command does."""

    kubeconfig: str
    token: ObjectRef
    earlier: tuple[ObjectRef, ...]
    wider: tuple[str, ...]

    def __repr__(self) -> str:
        return f"Granted({self.token})"


@dataclass(frozen=True, slots=True)
class AccountRow:
    """One account of the list."""

    ref: ObjectRef
    tokens: tuple[ObjectRef, ...]
    cluster_wide: bool
    csi_driver_only: bool
    created: datetime | None


async def require_harvester(client: Client, server: str) -> None:
    """Raises AddonRefused where the API server is that of another Kubernetes. Who may not read what shows it learns from what
    comes next."""
    with suppress(Forbidden):
        if await client.find(NAMESPACE.ref(VIP.namespace)) is None:
            raise AddonRefused(
                f"{server} is no Harvester: it has no Namespace {VIP.namespace}",
                "Name a kubeconfig of Harvester, not of a guest cluster or the management API: --harvester FILE",
            )


async def observe(client: Client, account: AddonAccount, server: str = "") -> AddonState:
    """What Harvester has of the account; `server` replaces its VIP."""
    refs = (*account.refs, account.token(1))
    read = await asyncio.gather(*(client.find(ref) for ref in refs))
    found = {ref: raw for ref, raw in zip(refs, read, strict=True) if raw is not None}
    secrets = {
        ref_of(SECRET, raw): raw for raw in await client.list(SECRET, account.namespace, labels=SELECTOR)
    }
    secrets |= {ref: raw for ref, raw in found.items() if ref.kind == SECRET}  # a script's has no label
    tokens = list_tokens(account, list(secrets.values()))
    return AddonState(
        namespace_exists=await _namespace_exists(client, account.namespace),
        server=server or await _find_server(client),
        found={ref: raw for ref, raw in found.items() if all(ref != token.ref for token in tokens)},
        tokens=tuple(tokens),
    )


async def _namespace_exists(client: Client, namespace: str) -> bool:
    try:
        return await client.find(NAMESPACE.ref(namespace)) is not None
    except Forbidden:  # who may not read it learns from the first creation
        return True


async def _find_server(client: Client) -> str:
    try:
        return find_vip_server(await client.find(VIP))
    except (Forbidden, NotFound):
        return ""


async def grant(
    client: Client,
    account: AddonAccount,
    clock: Clock,
    cluster: str,
    on_action: OnAction,
    *,
    server: str = "",
    rotate: bool = False,
    adopt: bool = False,
) -> Granted:
    """Make the account whole and return its credential. `cluster` is Harvester's name in the kubeconfig.

    Raises AddonRefused, before anything is changed, and AddonFailed.
    """
    rotated = False
    for _ in range(MAX_ROUNDS):
        state = await observe(client, account, server)
        _refuse(list_obstacles(account, state, adopt=adopt))
        # An account without a token has a new one; a second would be one too many.
        rotated |= rotate and len(state.tokens) != 1
        actions = plan_grant(account, state, rotate=rotate and not rotated)
        if not actions:
            break
        await _execute(client, actions, on_action)
    else:
        raise AddonFailed(
            f"ServiceAccount {account} is changed by others at the same time", "Run the command again."
        )
    newest = state.tokens[-1]
    access = await _wait_for_token(client, clock, newest.ref, state.server, account.namespace)
    name = f"{account.name}-{account.namespace}-{cluster}"
    return Granted(
        render_kubeconfig(access, name, cluster=cluster),
        newest.ref,
        tuple(token.ref for token in state.tokens[:-1]),
        tuple(await _list_wider_rights(client, account)),
    )


async def revoke_earlier(client: Client, account: AddonAccount, on_action: OnAction) -> None:
    """Delete all tokens but the newest. May be repeated."""
    await _execute(client, plan_revocation(account, await _observe_existing(client, account)), on_action)


async def delete(client: Client, account: AddonAccount, on_action: OnAction) -> None:
    """Delete all that `grant` made. May be repeated; raises AddonRefused where nothing is left."""
    await _execute(client, plan_deletion(account, await _observe_existing(client, account)), on_action)


async def _observe_existing(client: Client, account: AddonAccount) -> AddonState:
    state = await observe(client, account, server="-")
    if not plan_deletion(account, state):
        raise AccountNotFound(
            f"There is no ServiceAccount {account} of windrow addon on Harvester",
            "List them: windrow addon --list",
        )
    return state


class AccountNotFound(UserError):
    """Nothing on Harvester is the account's."""


async def list_accounts(client: Client) -> list[AccountRow]:
    """The accounts that `grant` made, by namespace and name."""
    accounts = await client.list(SERVICE_ACCOUNT, labels=SELECTOR)
    secrets = await client.list(SECRET, labels=SELECTOR)
    bindings = await client.list(CLUSTER_ROLE_BINDING, labels=SELECTOR)
    wide = {
        annotations_of(raw).get(ADDON_ACCOUNT)
        for raw in bindings
        if nested(raw, "roleRef", "name") == CSI_DRIVER_ROLE
    }
    only = {annotations_of(raw).get(ADDON_ACCOUNT) for raw in await client.list(ROLE, labels=SELECTOR)}
    rows = []
    for raw in accounts:
        ref = ref_of(SERVICE_ACCOUNT, raw)
        account = AddonAccount(ref.name, ref.namespace)
        own = [secret for secret in secrets if secret["metadata"].get("namespace") == ref.namespace]
        tokens = tuple(token.ref for token in list_tokens(account, own))
        rows.append(
            AccountRow(
                ref,
                tokens,
                cluster_wide=str(account) in wide,
                csi_driver_only=str(account) in only,
                created=time_of(raw, "metadata", "creationTimestamp"),
            )
        )
    return sorted(rows, key=lambda row: (row.ref.namespace, row.ref.name))


def _refuse(obstacles: Sequence[AddonRefused]) -> None:
    if obstacles:
        first, *others = obstacles
        raise AddonRefused(first.message, first.hint, tuple(others))


async def _execute(client: Client, actions: Sequence[Action], on_action: OnAction) -> None:
    for action in actions:
        # Another run of the command was faster; the next round sees what is left.
        match action:
            case Create():
                with suppress(AlreadyExists):
                    await client.create(action.kind, action.raw)
                    on_action(action)
            case Mark():
                with suppress(Conflict, NotFound):
                    await client.patch(action.ref, action.change)
                    on_action(action)
            case Delete():
                with suppress(Conflict, NotFound):
                    await client.delete(action.ref, uid=action.uid)
                    on_action(action)


async def _wait_for_token(
    client: Client, clock: Clock, ref: ObjectRef, server: str, namespace: str
) -> ClientConfig:
    if access := await _find_access(client, ref, server, namespace):
        return access
    informer = make_watcher(client.transport, SECRET, _version, clock, namespace)
    with suppress(TimeoutError):
        async with asyncio.timeout(TOKEN_WAIT_S), watching(informer) as changed:
            while True:
                changed.clear()
                if access := await _find_access(client, ref, server, namespace):
                    return access
                await changed.wait()
    raise AddonFailed(
        f"{ref} has no token after {TOKEN_WAIT_S:.0f} s: Harvester's controller has not filled it",
        "Run the command again; it goes on with what is there.",
    )


def _version(raw: Raw) -> str:
    return str(raw["metadata"]["resourceVersion"])


async def _find_access(client: Client, ref: ObjectRef, server: str, namespace: str) -> ClientConfig | None:
    try:
        return find_access(await client.get(ref), server, namespace)
    except ValueError as error:
        raise AddonFailed(str(error), "Delete that Secret, and run the command again.") from error


async def _list_wider_rights(client: Client, account: AddonAccount) -> list[str]:
    """Under the name that generate_addon.sh gives it; a list of all bindings is not everybody's to read."""
    with suppress(Forbidden):
        found = await client.find(CLUSTER_ROLE_BINDING.ref(account.name))
        return list_wider_rights(account, [found] if found else [])
    return []
