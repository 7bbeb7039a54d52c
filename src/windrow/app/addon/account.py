"""The objects of one addon account on Harvester: ServiceAccount, rights and tokens, all marked as made by `windrow addon`.

The rights are narrower than those of Harvester's scripts. generate_addon.sh binds the cloud provider's role in every namespace,
generate_addon_csi.sh the CSI driver's: a guest could change the volumes of other tenants. Here both are bound in the account's
namespace, and a ClusterRole of its own reads what has no namespace. What is lost are shared (RWX) volumes, whose NetworkFilesystems
are in harvester-system; `cluster_wide` gives the CSI driver's role everywhere, as the script does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from windrow.bootstrap.guest_account import (
    ACCOUNT_NAME,
    CLOUD_PROVIDER_ROLE,
    CSI_DRIVER_ROLE,
    TOKEN_TYPE,
)
from windrow.harvester.names import ADDON_ACCOUNT, MADE_BY
from windrow.kubernetes.objects import Raw, annotations_of, labels_of, nested, new_object, uid_of
from windrow.kubernetes.resources import (
    CLUSTER_ROLE,
    CLUSTER_ROLE_BINDING,
    ROLE_BINDING,
    SECRET,
    SERVICE_ACCOUNT,
    ApiResource,
    ObjectRef,
    ref_of,
)

ADDON = "addon"
SELECTOR = f"{MADE_BY}={ADDON}"
_READ = ["get", "list", "watch"]
# What the CSI driver reads outside of a namespace. By name a setting can be read, not watched.
RULES: list[Raw] = [
    {
        "apiGroups": ["storage.k8s.io"],
        "resources": ["storageclasses", "volumeattachments"],
        "verbs": _READ,
    },
    {"apiGroups": ["snapshot.storage.k8s.io"], "resources": ["volumesnapshotclasses"], "verbs": _READ},
    {"apiGroups": ["snapshot.storage.k8s.io"], "resources": ["volumesnapshotcontents"], "verbs": ["get"]},
    {
        "apiGroups": ["harvesterhci.io"],
        "resources": ["settings"],
        "resourceNames": ["csi-driver-config", "csi-online-expand-validation", "server-version"],
        "verbs": ["get"],
    },
]


@dataclass(frozen=True, slots=True)
class AddonAccount:
    """One ServiceAccount in one namespace of Harvester."""

    name: str
    namespace: str
    cluster_wide: bool = False

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def account(self) -> ObjectRef:
        return SERVICE_ACCOUNT.ref(self.name, self.namespace)

    @property
    def binding(self) -> ObjectRef:
        """Under the name that Harvester's script gives it."""
        return ROLE_BINDING.ref(self._joined, self.namespace)

    @property
    def csi_binding(self) -> ObjectRef:
        return ROLE_BINDING.ref(f"{self._joined}-csi", self.namespace)

    @property
    def cluster_role(self) -> ObjectRef:
        return CLUSTER_ROLE.ref(self._joined)

    @property
    def cluster_binding(self) -> ObjectRef:
        return CLUSTER_ROLE_BINDING.ref(self._joined)

    @property
    def refs(self) -> tuple[ObjectRef, ...]:
        """All but the tokens, whatever the rights: the account first, which stands for the others."""
        return self.account, self.binding, self.csi_binding, self.cluster_role, self.cluster_binding

    @property
    def _joined(self) -> str:
        return f"{self.namespace}-{self.name}"

    def token(self, serial: int) -> ObjectRef:
        """The first has the name that the scripts give it."""
        return SECRET.ref(
            f"{self.name}-token" if serial == 1 else f"{self.name}-token-{serial}", self.namespace
        )

    def render_objects(self) -> list[tuple[ApiResource, Raw]]:
        """What the account has with its rights, in the order of creation; without tokens."""
        made = [
            self._object(self.account),
            self._object(self.binding, **self._bind(CLOUD_PROVIDER_ROLE)),
        ]
        if self.cluster_wide:
            made.append(self._object(self.cluster_binding, **self._bind(CSI_DRIVER_ROLE)))
        else:
            made += [
                self._object(self.csi_binding, **self._bind(CSI_DRIVER_ROLE)),
                self._object(self.cluster_role, rules=RULES),
                self._object(self.cluster_binding, **self._bind(self.cluster_role.name)),
            ]
        return made

    def render_token(self, serial: int) -> tuple[ApiResource, Raw]:
        return self._object(self.token(serial), {ACCOUNT_NAME: self.name}, type=TOKEN_TYPE)

    def render_mark(self) -> Raw:
        """The change that makes an object the account's."""
        return {"metadata": {"labels": {MADE_BY: ADDON}, "annotations": {ADDON_ACCOUNT: str(self)}}}

    def is_owned(self, raw: Mapping[str, Any]) -> bool:
        return labels_of(raw).get(MADE_BY) == ADDON and annotations_of(raw).get(ADDON_ACCOUNT) == str(self)

    def is_subject(self, raw: Mapping[str, Any]) -> bool:
        """Whether a binding is of this account and of no other."""
        return raw.get("subjects") == self._subjects

    def find_serial(self, secret: Mapping[str, Any]) -> int:
        """Which token of the account this Secret is; 0 for none."""
        if secret.get("type") != TOKEN_TYPE or annotations_of(secret).get(ACCOUNT_NAME) != self.name:
            return 0
        name, first = secret["metadata"]["name"], self.token(1).name
        if name == first:
            return 1
        text = name.removeprefix(f"{first}-")
        return int(text) if text != name and text.isascii() and text.isdigit() and len(text) < 10 else 0

    @property
    def _subjects(self) -> list[Raw]:
        return [{"kind": SERVICE_ACCOUNT.kind, "name": self.name, "namespace": self.namespace}]

    def _object(
        self, ref: ObjectRef, annotations: Mapping[str, str] | None = None, **rest: Any
    ) -> tuple[ApiResource, Raw]:
        raw = new_object(
            ref.kind,
            ref.name,
            ref.namespace,
            labels={MADE_BY: ADDON},
            annotations={ADDON_ACCOUNT: str(self), **(annotations or {})},
            **rest,
        )
        return ref.kind, raw

    def _bind(self, role: str) -> dict[str, Any]:
        return {
            "roleRef": {"apiGroup": CLUSTER_ROLE.group, "kind": CLUSTER_ROLE.kind, "name": role},
            "subjects": self._subjects,
        }


@dataclass(frozen=True, slots=True)
class Token:
    """A token Secret as it was observed. `raw` holds the token once Harvester has filled it."""

    serial: int
    ref: ObjectRef
    raw: Raw

    @property
    def uid(self) -> str:
        return uid_of(self.raw)

    @property
    def is_filled(self) -> bool:
        return bool(nested(self.raw, "data", "token"))

    def __repr__(self) -> str:
        return f"Token({self.ref})"


def list_tokens(account: AddonAccount, secrets: list[Raw]) -> list[Token]:
    """The account's tokens among `secrets`, the oldest first."""
    found = [(account.find_serial(raw), raw) for raw in secrets]
    return sorted(
        (Token(serial, ref_of(SECRET, raw), raw) for serial, raw in found if serial),
        key=lambda token: token.serial,
    )
