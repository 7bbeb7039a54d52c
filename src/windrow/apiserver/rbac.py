"""The RBAC authorizer: roles and bindings are read from the store for each request (reference/05 §7.5)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from html import escape
from itertools import product
from typing import Any

from windrow.apiserver import apierrors
from windrow.apiserver.context import ServerContext
from windrow.apiserver.request.info import RequestInfo, UserInfo
from windrow.kubernetes.errors import KubeError
from windrow.kubernetes.objects import labels_of, name_of, nested
from windrow.kubernetes.resources import CLUSTER_ROLE, CLUSTER_ROLE_BINDING, ROLE, ROLE_BINDING, ApiResource
from windrow.kubernetes.selectors import read_label_selector

Raw = dict[str, Any]
Rule = dict[str, Any]

FULL_AUTHORITY: list[Rule] = [
    {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]},
    {"nonResourceURLs": ["*"], "verbs": ["*"]},
]


def forbidden_error(user: UserInfo, verb: str, info: RequestInfo) -> KubeError:
    """The 403 of kube-apiserver."""
    if not info.is_resource:
        return apierrors.status_error(
            403, f'forbidden: User "{_safe(user.username)}" cannot {verb} path "{_safe(info.path)}"'
        )
    kind = ApiResource(info.group, info.version, "", info.plural)
    return apierrors.forbidden(kind, info.name, denial_message(user, verb, info))


def denial_message(user: UserInfo, verb: str, info: RequestInfo) -> str:
    resource = f"{info.plural}/{info.subresource}" if info.subresource else info.plural
    scope = f'in the namespace "{_safe(info.namespace)}"' if info.namespace else "at the cluster scope"
    return (
        f'User "{_safe(user.username)}" cannot {verb} resource "{_safe(resource)}" '
        f'in API group "{_safe(info.group)}" {scope}'
    )


def _safe(text: str) -> str:
    return escape(text, quote=False)


# --- rules ------------------------------------------------------------------------------------------------------------


def _matches(offered: Iterable[str] | None, wanted: str) -> bool:
    values = list(offered or ())
    return "*" in values or wanted in values


def _matches_resource(offered: Iterable[str] | None, plural: str, subresource: str) -> bool:
    wanted = f"{plural}/{subresource}" if subresource else plural
    values = list(offered or ())
    return "*" in values or wanted in values or bool(subresource and f"*/{subresource}" in values)


def _matches_path(offered: Iterable[str] | None, path: str) -> bool:
    return any(
        one in ("*", path) or (one.endswith("*") and path.startswith(one[:-1])) for one in offered or ()
    )


def rule_allows(rule: Rule, verb: str, info: RequestInfo) -> bool:
    """Whether the rule allows `verb` on the resource."""
    if not _matches(rule.get("verbs"), verb):
        return False
    if not info.is_resource:
        return _matches_path(rule.get("nonResourceURLs"), info.path)
    names = rule.get("resourceNames") or ()
    return (
        _matches(rule.get("apiGroups"), info.group)
        and _matches_resource(rule.get("resources"), info.plural, info.subresource)
        and (not names or info.name in names)
    )


def _is_subject(subject: Raw, user: UserInfo, namespace: str) -> bool:
    match subject.get("kind"):
        case "User":
            return bool(subject.get("name") == user.username)
        case "Group":
            return subject.get("name") in user.groups
        case "ServiceAccount":
            where = subject.get("namespace") or namespace
            return user.username == f"system:serviceaccount:{where}:{subject.get('name')}"
        case _:
            return False


class RbacAuthorizer:
    """Authorizes by the roles and bindings in the store."""

    def __init__(self, context: ServerContext) -> None:
        self._context = context

    async def allows(self, user: UserInfo, verb: str, info: RequestInfo) -> bool:
        if user.is_superuser:
            return True
        rules = await self.rules(user, info.namespace if info.is_resource else "")
        return any(rule_allows(rule, verb, info) for rule in rules)

    async def rules(self, user: UserInfo, namespace: str) -> list[Rule]:
        """Every rule of the user in `namespace` ("": cluster-wide only)."""
        found: list[Rule] = []
        for binding in await self._context.entries(CLUSTER_ROLE_BINDING):
            if self._binds(binding.raw, user):
                found += await self.role_rules(binding.raw["roleRef"], "")
        for binding in await self._context.entries(ROLE_BINDING, namespace) if namespace else ():
            if self._binds(binding.raw, user):
                found += await self.role_rules(binding.raw["roleRef"], namespace)
        return found

    @staticmethod
    def _binds(binding: Raw, user: UserInfo) -> bool:
        namespace = binding["metadata"].get("namespace", "")
        return any(_is_subject(subject, user, namespace) for subject in binding.get("subjects") or ())

    async def role_rules(self, role: Raw, namespace: str) -> list[Rule]:
        """The rules of the role that a binding refers to; none when it does not exist."""
        kind = ROLE if role.get("kind") == "Role" else CLUSTER_ROLE
        if kind is ROLE and not namespace:
            return []
        entry = await self._context.find(kind, role.get("name", ""), namespace)
        if entry is None:
            return []
        found = list(entry.raw.get("rules") or ())
        selectors = nested(entry.raw, "aggregationRule", "clusterRoleSelectors", default=[])
        wanted = [read_label_selector(selector) for selector in selectors]
        for other in await self._context.entries(CLUSTER_ROLE) if wanted else ():
            labels = labels_of(other.raw)
            if name_of(other.raw) != role["name"] and any(one.matches(labels) for one in wanted):
                found += other.raw.get("rules") or ()
        return found

    # --- escalation ---------------------------------------------------------------------------------------------------

    async def check_escalation(self, user: UserInfo, kind: ApiResource, raw: Raw, old: Raw | None) -> None:
        """Privilege escalation check: 403 for a role or binding with rules that the user does not hold.

        For every change but one that lets the object be deleted: a new subject of a binding is a grant, and so is a
        label by which another role aggregates this one. An aggregation rule may gather anything, so it needs full
        authority.
        """
        if user.is_superuser or kind not in (ROLE, CLUSTER_ROLE, ROLE_BINDING, CLUSTER_ROLE_BINDING):
            return
        if old is not None and _without_gc_fields(old) == _without_gc_fields(raw):
            return
        namespace = raw["metadata"].get("namespace", "")
        name = raw["metadata"].get("name", "")
        if kind in (ROLE, CLUSTER_ROLE):
            verb, info = "escalate", RequestInfo.of(kind, namespace, name)
            wanted = list(raw.get("rules") or ())
            if raw.get("aggregationRule") or (old or {}).get("aggregationRule"):
                wanted += FULL_AUTHORITY
        else:
            role = raw.get("roleRef") or {}
            plural = "roles" if role.get("kind") == "Role" else "clusterroles"
            verb, info = (
                "bind",
                RequestInfo("", kind.group, kind.version, plural, namespace, role.get("name", "")),
            )
            wanted = await self.role_rules(role, namespace)
        held = await self.rules(user, namespace)
        missing = [rule for rule in wanted if not _is_covered(rule, held)]
        if not missing or any(rule_allows(rule, verb, info) for rule in held):
            return
        groups = ", ".join(f'"{group}"' for group in user.groups)
        listed = "\n".join(_format_rule(rule) for rule in missing)
        why = (
            f'user "{user.username}" (groups=[{groups}]) is attempting to grant RBAC permissions not currently held:'
            f"\n{listed}"
        )
        raise apierrors.forbidden(kind, name, why)


_GC_FIELDS = ("finalizers", "ownerReferences", "managedFields", "resourceVersion", "generation")


def _without_gc_fields(raw: Raw) -> Raw:
    """The object without what garbage collection and the server write."""
    return {
        **raw,
        "metadata": {key: value for key, value in raw["metadata"].items() if key not in _GC_FIELDS},
    }


def _parts(rule: Rule) -> Iterator[tuple[str, RequestInfo]]:
    """A rule as single verb and resource pairs."""
    for verb, path in product(rule.get("verbs") or (), rule.get("nonResourceURLs") or ()):
        yield verb, RequestInfo(path)
    names = rule.get("resourceNames") or [""]
    combined = product(
        rule.get("verbs") or (), rule.get("apiGroups") or (), rule.get("resources") or (), names
    )
    for verb, group, resource, name in combined:
        plural, _, subresource = resource.partition("/")
        yield verb, RequestInfo("", group, "", plural, "", name, subresource)


def _is_covered(rule: Rule, held: list[Rule]) -> bool:
    return all(any(rule_allows(one, verb, info) for one in held) for verb, info in _parts(rule))


def _format_rule(rule: Rule) -> str:
    names = (
        ("APIGroups", "apiGroups"),
        ("Resources", "resources"),
        ("ResourceNames", "resourceNames"),
        ("NonResourceURLs", "nonResourceURLs"),
        ("Verbs", "verbs"),
    )
    fields = []
    for label, name in names:
        if rule.get(name):
            quoted = ", ".join(f'"{one}"' for one in rule[name])
            fields.append(f"{label}:[{quoted}]")
    return "{" + ", ".join(fields) + "}"


# --- bootstrap policy --------------------------------------------------------------------------------

_READ, _WRITE = ["get", "list", "watch"], ["create", "delete", "deletecollection", "patch", "update"]
_EVERYDAY = [
    {"apiGroups": [""], "resources": ["configmaps", "endpoints", "persistentvolumeclaims", "pods", "pods/log",
                                      "services", "serviceaccounts", "events"]},
    {"apiGroups": ["apps"], "resources": ["daemonsets", "deployments", "replicasets", "statefulsets"]},
    {"apiGroups": ["batch"], "resources": ["jobs"]},
    {"apiGroups": ["policy"], "resources": ["poddisruptionbudgets"]},
    {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"]},
    {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"]},
]  # fmt: skip
_NAMESPACE = {"apiGroups": [""], "resources": ["namespaces", "resourcequotas"], "verbs": _READ}
_SECRETS = {"apiGroups": [""], "resources": ["secrets"]}
_ROLES = {"apiGroups": [ROLE.group], "resources": ["roles", "rolebindings"], "verbs": [*_WRITE, *_READ]}
_VIEW = [*({**rule, "verbs": _READ} for rule in _EVERYDAY), _NAMESPACE]
_EDIT = [
    *({**rule, "verbs": [*_WRITE, *_READ]} for rule in [*_EVERYDAY, _SECRETS]),
    {"apiGroups": [""], "resources": ["serviceaccounts"], "verbs": ["impersonate"]},
    {"apiGroups": [""], "resources": ["pods/eviction", "serviceaccounts/token"], "verbs": ["create"]},
    _NAMESPACE,
]
_PUBLIC = ["/healthz", "/livez", "/readyz", "/version", "/version/"]
_DISCOVERY = ["/api", "/api/*", "/apis", "/apis/*", "/openapi", "/openapi/*", *_PUBLIC]
_SELF = ["selfsubjectaccessreviews", "selfsubjectrulesreviews"]

BOOTSTRAP_ROLES: dict[str, list[Rule]] = {
    "cluster-admin": FULL_AUTHORITY,
    "admin": [*_EDIT, _ROLES],
    "edit": _EDIT,
    "view": _VIEW,
    "system:basic-user": [
        {"apiGroups": ["authorization.k8s.io"], "resources": _SELF, "verbs": ["create"]},
        {"apiGroups": ["authentication.k8s.io"], "resources": ["selfsubjectreviews"], "verbs": ["create"]},
    ],
    "system:discovery": [{"nonResourceURLs": _DISCOVERY, "verbs": ["get"]}],
    "system:public-info-viewer": [{"nonResourceURLs": _PUBLIC, "verbs": ["get"]}],
}
BOOTSTRAP_BINDINGS: dict[str, tuple[str, ...]] = {
    "cluster-admin": ("system:masters",),
    "system:basic-user": ("system:authenticated",),
    "system:discovery": ("system:authenticated",),
    "system:public-info-viewer": ("system:authenticated", "system:unauthenticated"),
}
AGGREGATED = ("admin", "edit", "view")


def bootstrap_objects() -> Iterator[tuple[ApiResource, Raw]]:
    """The roles and bindings of a new cluster."""
    labels = {"kubernetes.io/bootstrapping": "rbac-defaults"}
    for name, rules in BOOTSTRAP_ROLES.items():
        raw: Raw = {"metadata": {"name": name, "labels": dict(labels)}, "rules": rules}
        if name in AGGREGATED:
            marks = {f"rbac.authorization.k8s.io/aggregate-to-{name}": "true"}
            raw["aggregationRule"] = {"clusterRoleSelectors": [{"matchLabels": marks}]}
        yield CLUSTER_ROLE, raw
    for name, groups in BOOTSTRAP_BINDINGS.items():
        subjects = [
            {"kind": "Group", "name": group} for group in groups
        ]  # the group of the API is their default
        role = {"apiGroup": ROLE.group, "kind": "ClusterRole", "name": name}
        yield (
            CLUSTER_ROLE_BINDING,
            {"metadata": {"name": name, "labels": dict(labels)}, "roleRef": role, "subjects": subjects},
        )
