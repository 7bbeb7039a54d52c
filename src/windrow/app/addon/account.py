"""The objects of one addon account on Harvester: ServiceAccount, rights and tokens, all marked as made by `windrow addon`.

The rights are narrower than those of Harvester's scripts. generate_addon.sh binds the cloud provider's role in every namespace,
generate_addon_csi.sh the CSI driver's: a guest could change the volumes of other tenants. Here both are bound in the account's
namespace, and a ClusterRole of its own reads what has no namespace. What is lost are shared (RWX) volumes, whose NetworkFilesystems
are in harvester-system; `cluster_wide` gives the CSI driver's role everywhere, as the script does.

Harvester's roles are those of a release, and also the Go programs'. `csi_driver_only` is an account for Windrow's CSI driver alone, with
a Role of what it does: tests/stories/test_csi_rights.py takes each right away and says what is missed then.
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
    ROLE,
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
# What Windrow's CSI driver does in the namespace of the VMs. `update` of subresources: Harvester before 1.8, and instances whose
# VirtualMachine is gone.
CSI_DRIVER_RULES: list[Raw] = [
    {
        "apiGroups": [""],
        "resources": ["persistentvolumeclaims"],
        "verbs": [*_READ, "create", "patch", "delete"],
    },
    {"apiGroups": ["kubevirt.io"], "resources": ["virtualmachines"], "verbs": [*_READ, "patch"]},
    {"apiGroups": ["kubevirt.io"], "resources": ["virtualmachineinstances"], "verbs": _READ},
    # A launcher that still runs is a VM that was not shut down: the driver taints Nodes by that.
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]},
    {
        "apiGroups": ["subresources.kubevirt.io"],
        "resources": [
            "virtualmachines/addvolume",
            "virtualmachines/removevolume",
            "virtualmachineinstances/removevolume",
        ],
        "verbs": ["update"],
    },
    {
        "apiGroups": ["snapshot.storage.k8s.io"],
        "resources": ["volumesnapshots"],
        "verbs": ["get", "list", "create", "delete"],
    },
    {
        "apiGroups": ["harvesterhci.io"],
        "resources": ["volumeremotebackups"],
        "verbs": ["get", "list", "create", "delete"],
    },
    {
        "apiGroups": ["harvesterhci.io"],
        "resources": ["volumeremoterestores"],
        "verbs": ["get", "create", "delete"],
    },
]
# And outside of a namespace.
CSI_DRIVER_CLUSTER_RULES: list[Raw] = [
    {"apiGroups": ["storage.k8s.io"], "resources": ["storageclasses"], "verbs": ["get"]},
    {
        "apiGroups": ["harvesterhci.io"],
        "resources": ["settings"],
        "resourceNames": ["csi-driver-config", "server-version"],
        "verbs": ["get"],
    },
]


@dataclass(frozen=True, slots=True)
class AddonAccount:
    """One ServiceAccount in one namespace of Harvester."""

    name: str
    namespace: str
    cluster_wide: bool = False
    # Not together with `cluster_wide`.
    csi_driver_only: bool = False

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
    def csi_role(self) -> ObjectRef:
        return ROLE.ref(self.csi_binding.name, self.namespace)

    @property
    def cluster_role(self) -> ObjectRef:
        return CLUSTER_ROLE.ref(self._joined)

    @property
    def cluster_binding(self) -> ObjectRef:
        return CLUSTER_ROLE_BINDING.ref(self._joined)

    @property
    def refs(self) -> tuple[ObjectRef, ...]:
        """All but the tokens, whatever the rights: the account first, which stands for the others."""
        in_namespace = self.binding, self.csi_role, self.csi_binding
        return self.account, *in_namespace, self.cluster_role, self.cluster_binding

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
        if self.csi_driver_only:
            return [
                self._object(self.account),
                self._object(self.csi_role, rules=CSI_DRIVER_RULES),
                self._object(self.csi_binding, **self._bind(self.csi_role.name, ROLE)),
                self._object(self.cluster_role, rules=CSI_DRIVER_CLUSTER_RULES),
                self._object(self.cluster_binding, **self._bind(self.cluster_role.name)),
            ]
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

    def _bind(self, role: str, kind: ApiResource = CLUSTER_ROLE) -> dict[str, Any]:
        return {
            "roleRef": {"apiGroup": kind.group, "kind": kind.kind, "name": role},
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
