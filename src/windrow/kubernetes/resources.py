"""API resources and references to objects, with their URL paths: `ApiResource` and `ObjectRef`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

_PLAIN = re.compile(r"[A-Za-z0-9._~:@!$&'()*+,;=-]+")


def _quote(segment: str) -> str:
    """A name as one segment of a path: names come from users, and one with "/" or "?" must not lead elsewhere."""
    if _PLAIN.fullmatch(segment):
        return segment
    from urllib.parse import quote  # 2 ms of a plugin's start

    return quote(segment, safe="")


@dataclass(frozen=True, slots=True)
class ApiResource:
    """A resource type, as API discovery describes it. `group` is "" for the core group."""

    group: str
    version: str
    kind: str
    plural: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def root(self) -> str:
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"

    @property
    def group_resource(self) -> str:
        """`virtualmachines.kubevirt.io`, or `secrets` in the core group: Go's GroupResource, as error messages have it."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """The URL path of the collection, of one object, or of its subresource."""
        parts = [self.root]
        if self.namespaced and namespace:
            parts += ["namespaces", _quote(namespace)]
        parts.append(self.plural)
        if name:
            parts.append(_quote(name))
        if subresource:
            parts.append(subresource)
        return "/".join(parts)

    def ref(self, name: str, namespace: str = "") -> ObjectRef:
        return ObjectRef(self, namespace if self.namespaced else "", name)


@dataclass(frozen=True, slots=True)
class ObjectRef:
    """One object, by name. `namespace` is "" for cluster-scoped kinds."""

    kind: ApiResource
    namespace: str
    name: str

    @property
    def path(self) -> str:
        return self.kind.path(self.namespace, self.name)

    def __str__(self) -> str:
        where = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return f"{self.kind.kind} {where}"


def ref_of(kind: ApiResource, raw: dict[str, Any]) -> ObjectRef:
    """The reference to the object `raw` of that kind."""
    metadata = raw["metadata"]
    return kind.ref(metadata["name"], metadata.get("namespace", ""))


# Built-in resources. Harvester's are in `harvester.kinds`, ours in `clusters.api.kinds`.
NAMESPACE = ApiResource("", "v1", "Namespace", "namespaces", namespaced=False)
NODE = ApiResource("", "v1", "Node", "nodes", namespaced=False)
POD = ApiResource("", "v1", "Pod", "pods")
SECRET = ApiResource("", "v1", "Secret", "secrets")
CONFIG_MAP = ApiResource("", "v1", "ConfigMap", "configmaps")
SERVICE = ApiResource("", "v1", "Service", "services")
SERVICE_ACCOUNT = ApiResource("", "v1", "ServiceAccount", "serviceaccounts")
EVENT = ApiResource("", "v1", "Event", "events")
PVC = ApiResource("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims")
RESOURCE_QUOTA = ApiResource("", "v1", "ResourceQuota", "resourcequotas")
DEPLOYMENT = ApiResource("apps", "v1", "Deployment", "deployments")
REPLICA_SET = ApiResource("apps", "v1", "ReplicaSet", "replicasets")
DAEMON_SET = ApiResource("apps", "v1", "DaemonSet", "daemonsets")
STATEFUL_SET = ApiResource("apps", "v1", "StatefulSet", "statefulsets")
CONTROLLER_REVISION = ApiResource("apps", "v1", "ControllerRevision", "controllerrevisions")
JOB = ApiResource("batch", "v1", "Job", "jobs")
RBAC = "rbac.authorization.k8s.io"
ROLE = ApiResource(RBAC, "v1", "Role", "roles")
ROLE_BINDING = ApiResource(RBAC, "v1", "RoleBinding", "rolebindings")
CLUSTER_ROLE = ApiResource(RBAC, "v1", "ClusterRole", "clusterroles", namespaced=False)
CLUSTER_ROLE_BINDING = ApiResource(RBAC, "v1", "ClusterRoleBinding", "clusterrolebindings", namespaced=False)
LEASE = ApiResource("coordination.k8s.io", "v1", "Lease", "leases")
STORAGE_CLASS = ApiResource("storage.k8s.io", "v1", "StorageClass", "storageclasses", namespaced=False)
PERSISTENT_VOLUME = ApiResource("", "v1", "PersistentVolume", "persistentvolumes", namespaced=False)
VOLUME_ATTACHMENT = ApiResource(
    "storage.k8s.io", "v1", "VolumeAttachment", "volumeattachments", namespaced=False
)
CRD = ApiResource(
    "apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions", namespaced=False
)
AUTHN, AUTHZ = "authentication.k8s.io", "authorization.k8s.io"
TOKEN_REVIEW = ApiResource(AUTHN, "v1", "TokenReview", "tokenreviews", namespaced=False)
SUBJECT_ACCESS_REVIEW = ApiResource(
    AUTHZ, "v1", "SubjectAccessReview", "subjectaccessreviews", namespaced=False
)
LOCAL_SUBJECT_ACCESS_REVIEW = ApiResource(
    AUTHZ, "v1", "LocalSubjectAccessReview", "localsubjectaccessreviews"
)
SELF_SUBJECT_ACCESS_REVIEW = ApiResource(
    AUTHZ, "v1", "SelfSubjectAccessReview", "selfsubjectaccessreviews", namespaced=False
)
