"""What to do on Harvester for an addon account: pure functions of what was observed.

Every plan may be made again after any part of it was carried out, and then holds the rest.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from windrow.app.addon.account import AddonAccount, Token
from windrow.core.errors import UserError
from windrow.harvester.names import ADDON_ACCOUNT, CLUSTER_UID
from windrow.kubernetes.objects import Raw, annotations_of, is_deleting, uid_of
from windrow.kubernetes.resources import CLUSTER_ROLE, ROLE, SECRET, ApiResource, ObjectRef

# Every pod that names no account runs as this one.
DEFAULT_ACCOUNT = "default"
_RIGHTS = ("rules", "roleRef", "subjects")


class AddonRefused(UserError):
    """The account cannot be made; nothing was changed. `others` are further reasons."""

    def __init__(self, message: str, hint: str, others: tuple[AddonRefused, ...] = ()) -> None:
        super().__init__(message, hint)
        self.others = others


@dataclass(frozen=True, slots=True)
class AddonState:
    """What Harvester has. `server`: how guests reach it, "" where that is not known."""

    namespace_exists: bool
    server: str
    found: Mapping[
        ObjectRef, Raw
    ]  # of the account's refs, those that exist, and what has the name of a token
    tokens: tuple[Token, ...]  # the oldest first; of another owner, too


@dataclass(frozen=True, slots=True)
class Create:
    kind: ApiResource
    raw: Raw
    because: str

    @property
    def ref(self) -> ObjectRef:
        return self.kind.ref(self.raw["metadata"]["name"], self.raw["metadata"].get("namespace", ""))


@dataclass(frozen=True, slots=True)
class Mark:
    """Make an existing object the account's, by its label."""

    ref: ObjectRef
    change: Raw
    because: str


@dataclass(frozen=True, slots=True)
class Delete:
    ref: ObjectRef
    uid: str
    because: str


Action = Create | Mark | Delete


def list_obstacles(account: AddonAccount, state: AddonState, *, adopt: bool) -> list[AddonRefused]:
    """Why the account cannot be made. `adopt`: whether what Harvester's scripts made under these names is taken over."""
    return list(_list_obstacles(account, state, adopt))


def _list_obstacles(account: AddonAccount, state: AddonState, adopt: bool) -> Iterator[AddonRefused]:
    if account.name == DEFAULT_ACCOUNT:
        yield AddonRefused(
            f"ServiceAccount {account} is that of every pod which names none, so all of them would have these rights",
            "Choose another name, such as that of the cluster.",
        )
        return
    if not state.namespace_exists:
        yield AddonRefused(
            f"Namespace {account.namespace} not found on Harvester",
            f"Name the namespace of the machines, or create it: kubectl create namespace {account.namespace}",
        )
        return
    if not state.server:
        yield AddonRefused(
            "Harvester's address for guests is not known: ConfigMap harvester-system/vip was not found, or may not be read",
            "Name the address: --server https://VIP:6443",
        )
    found = {**state.found, **{token.ref: token.raw for token in state.tokens}}
    obstacles = {ref: _find_obstacle(account, ref, raw) for ref, raw in found.items()}
    yield from filter(None, obstacles.values())
    foreign = [ref for ref, raw in found.items() if not obstacles[ref] and not account.is_owned(raw)]
    if foreign and not adopt:
        yield AddonRefused(
            f"{', '.join(map(str, foreign))} exist{'s' * (len(foreign) == 1)} already, not created by this command",
            "Take over what Harvester's script created with --adopt, or choose another name for the ServiceAccount.",
        )


def _find_obstacle(account: AddonAccount, ref: ObjectRef, raw: Raw) -> AddonRefused | None:
    """Why an object cannot become the account's, whatever the user wants."""
    if is_deleting(raw):
        return AddonRefused(f"{ref} is being deleted", "Run the command again once it is gone.")
    if account.is_owned(raw) and (ref.kind != SECRET or account.find_serial(raw)):
        return None
    if ref.kind == SECRET and not account.find_serial(raw):
        return AddonRefused(
            f"{ref} exists and is no token of ServiceAccount {account}",
            "Choose another name for the ServiceAccount.",
        )
    if annotations_of(raw).get(CLUSTER_UID):
        return AddonRefused(
            f"{ref} belongs to a Cluster that Windrow manages", "Choose another name for the ServiceAccount."
        )
    if other := annotations_of(raw).get(ADDON_ACCOUNT):
        return AddonRefused(
            f"{ref} belongs to the addon account {other}", "Choose another name for the ServiceAccount."
        )
    # Harvester's scripts create no roles: this one may be bound to other accounts.
    if ref.kind in (CLUSTER_ROLE, ROLE) or ("subjects" in raw and not account.is_subject(raw)):
        return AddonRefused(
            f"{ref} exists and is not that of ServiceAccount {account}",
            "Choose another name for the ServiceAccount.",
        )
    return None


def plan_grant(account: AddonAccount, state: AddonState, *, rotate: bool = False) -> list[Action]:
    """What makes the account with its rights and a token whole; with `rotate`, a second token where there is one."""
    wanted = account.render_objects()
    actions: list[Action] = []
    for kind, raw in wanted:
        ref = kind.ref(raw["metadata"]["name"], raw["metadata"].get("namespace", ""))
        actions += _plan_object(account, kind, raw, state.found.get(ref), ref)
    kept = {kind.ref(raw["metadata"]["name"], raw["metadata"].get("namespace", "")) for kind, raw in wanted}
    actions += [
        Delete(ref, uid_of(raw), "the account's rights no longer name it")
        for ref, raw in state.found.items()
        if ref not in kept and account.is_owned(raw)
    ]
    actions += [
        Mark(token.ref, account.render_mark(), "Harvester's script created it")
        for token in state.tokens
        if not account.is_owned(token.raw)
    ]
    if not state.tokens:
        actions.append(Create(*account.render_token(1), "the account has no token"))
    elif rotate and len(state.tokens) == 1:
        actions.append(Create(*account.render_token(state.tokens[-1].serial + 1), "the token is rotated"))
    return actions


def _plan_object(
    account: AddonAccount, kind: ApiResource, raw: Raw, found: Raw | None, ref: ObjectRef
) -> list[Action]:
    if found is None:
        return [Create(kind, raw, "it does not exist")]
    if any(raw.get(field) != found.get(field) for field in _RIGHTS):
        # The role of a binding cannot be changed.
        because = "it gives other rights"
        return [Delete(ref, uid_of(found), because), Create(kind, raw, because)]
    if not account.is_owned(found):
        return [Mark(ref, account.render_mark(), "Harvester's script created it")]
    return []


def plan_revocation(account: AddonAccount, state: AddonState) -> list[Action]:
    """The deletion of all tokens but the newest. Raises AddonRefused where that one was never handed out."""
    if len(state.tokens) > 1 and not state.tokens[-1].is_filled:
        raise AddonRefused(
            f"{state.tokens[-1].ref} has no token yet, so the earlier ones are all that clusters can have",
            f"Print it first: windrow addon {account.name} {account.namespace}",
        )
    return [
        Delete(token.ref, token.uid, "a newer token is there")
        for token in state.tokens[:-1]
        if account.is_owned(token.raw)
    ]


def plan_deletion(account: AddonAccount, state: AddonState) -> list[Action]:
    """The deletion of all that is the account's: tokens first, which ends their validity, the ServiceAccount last."""
    owned = {ref: raw for ref, raw in state.found.items() if account.is_owned(raw)}
    return [
        *(
            Delete(token.ref, token.uid, "the account is deleted")
            for token in state.tokens
            if account.is_owned(token.raw)
        ),
        *(
            Delete(ref, uid_of(owned[ref]), "the account is deleted")
            for ref in reversed(account.refs)
            if ref in owned
        ),
    ]


def list_wider_rights(account: AddonAccount, bindings: list[Raw]) -> list[str]:
    """The names of ClusterRoleBindings that give the account more than its own: those of Harvester's scripts."""
    return [
        raw["metadata"]["name"] for raw in bindings if account.is_subject(raw) and not account.is_owned(raw)
    ]
