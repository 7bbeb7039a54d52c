"""The built-in resource types as a table: names, subresources, partial schemas, and printer columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any

from windrow.apiserver.types import (
    crds,
    quota_validation,
    storage_validation,
    validation,
    workload_validation,
)
from windrow.apiserver.types.crds import METADATA_FIELDS
from windrow.apiserver.types.printers import COLUMNS_BY_RESOURCE, DEFAULT_COLUMNS
from windrow.apiserver.types.registry import VERBS, ResourceType, ScalePaths, Validate
from windrow.apiserver.types.schema import LIST_KEYS, LIST_TYPE, PATCH_KEY, PATCH_STRATEGY, PRESERVE
from windrow.apiserver.types.service_validation import validate_service
from windrow.core.text import encode_base64
from windrow.kubernetes import resources
from windrow.kubernetes.resources import AUTHN, AUTHZ, RBAC, ApiResource

Raw = dict[str, Any]


# --- schema bits ----------------------------------------------------------------------------------------------------


def open_object(required: tuple[str, ...] = (), **fields: Any) -> Raw:
    """An object schema with `fields`; unknown fields are preserved."""
    made: Raw = {"type": "object", PRESERVE: True}
    if fields:
        made["properties"] = fields
    if required:
        made["required"] = list(required)
    return made


def keyed_list(
    key: str,
    item: Raw | None = None,
    *,
    strategy: str = "merge",
    keys: tuple[str, ...] = (),
    list_type: str = "map",
) -> Raw:
    """A list of type `map` or `atomic` whose merge key is `key`."""
    made: Raw = {"type": "array", "items": item or open_object(), PATCH_STRATEGY: strategy, PATCH_KEY: key}
    if list_type == "map":
        made[LIST_KEYS] = list(keys or (key,))
    return {**made, LIST_TYPE: list_type}


def atomic_list(item: Raw | None = None) -> Raw:
    """A list of type `atomic`: replaced as a whole."""
    return {"type": "array", "items": item or {PRESERVE: True}, LIST_TYPE: "atomic"}


def string_list(**rest: Any) -> Raw:
    return {"type": "array", "items": {"type": "string"}, **rest}


STRING: Raw = {"type": "string"}
INTEGER: Raw = {"type": "integer"}
BOOLEAN: Raw = {"type": "boolean"}
STRING_MAP: Raw = {"type": "object", "additionalProperties": {"type": "string"}}
STRING_SET: Raw = string_list(**{PATCH_STRATEGY: "merge", LIST_TYPE: "set"})
CONDITIONS: Raw = keyed_list("type")
STATUS: Raw = open_object(conditions=CONDITIONS)
OWNERS: Raw = keyed_list("uid")
METADATA: Raw = open_object(ownerReferences=OWNERS, finalizers=STRING_SET)


def object_schema(**fields: Any) -> Raw:
    """The schema of a built-in object."""
    return open_object(metadata=METADATA, **fields)


def closed_object_schema(**fields: Any) -> Raw:
    """The schema of a built-in object without any further field."""
    return {name: value for name, value in object_schema(**fields).items() if name != PRESERVE}


def with_default(schema: Raw, value: Any) -> Raw:
    return {**schema, "default": value}


CONTAINER: Raw = open_object(
    ("name",),
    name=STRING,
    # Server-side apply keys ports by number and protocol; a strategic patch by number alone.
    ports=keyed_list(
        "containerPort", open_object(protocol=with_default(STRING, "TCP")), keys=("containerPort", "protocol")
    ),
    env=keyed_list("name"),
    volumeMounts=keyed_list("mountPath"),
    volumeDevices=keyed_list("devicePath"),
)
POD_SPEC: Raw = open_object(
    containers=keyed_list("name", CONTAINER),
    initContainers=keyed_list("name", CONTAINER),
    ephemeralContainers=keyed_list("name", CONTAINER),
    volumes=keyed_list("name", strategy="merge,retainKeys"),
    imagePullSecrets=keyed_list("name"),
    hostAliases=keyed_list("ip"),
    tolerations=atomic_list(),
    restartPolicy=with_default(STRING, "Always"),
    dnsPolicy=with_default(STRING, "ClusterFirst"),
    schedulerName=with_default(STRING, "default-scheduler"),
    terminationGracePeriodSeconds=with_default(INTEGER, 30),
)
TEMPLATE: Raw = open_object(metadata=open_object(labels=STRING_MAP), spec=POD_SPEC)
SELECTOR: Raw = open_object(
    matchLabels=STRING_MAP, matchExpressions=atomic_list(open_object(("key", "operator")))
)
REPLICAS: Raw = with_default(INTEGER, 1)
REPLICATED: Raw = open_object(replicas=REPLICAS, selector=SELECTOR, template=TEMPLATE)
JOB_SPEC: Raw = open_object(
    parallelism=INTEGER, completions=INTEGER, backoffLimit=INTEGER, selector=SELECTOR, template=TEMPLATE
)
SERVICE_SPEC: Raw = open_object(
    type=with_default(STRING, "ClusterIP"),
    sessionAffinity=with_default(STRING, "None"),
    clusterIP=STRING,
    clusterIPs=atomic_list(STRING),
    ipFamilies=atomic_list(STRING),
    ipFamilyPolicy=STRING,
    externalIPs=atomic_list(STRING),
    externalTrafficPolicy=STRING,
    healthCheckNodePort=INTEGER,
    allocateLoadBalancerNodePorts=BOOLEAN,
    loadBalancerClass=STRING,
    ports=keyed_list(
        "port",
        open_object(
            ("port",),
            name=STRING,
            port=INTEGER,
            nodePort=INTEGER,
            protocol=with_default(STRING, "TCP"),
        ),
        keys=("port", "protocol"),
    ),
)
STORAGE_CLASS: Raw = object_schema(
    provisioner=STRING,
    parameters=STRING_MAP,
    reclaimPolicy=with_default(STRING, "Delete"),
    volumeBindingMode=with_default(STRING, "Immediate"),
)
ROLE_RULES: Raw = atomic_list(open_object(("verbs",), verbs=string_list()))
ROLE_REF: Raw = open_object(("kind", "name"), apiGroup=with_default(STRING, RBAC), kind=STRING, name=STRING)


def fields(*paths: str) -> dict[str, tuple[str, ...]]:
    return {path: tuple(path.split(".")) for path in paths}


# --- PrepareForCreate: fields the server sets on create -----------------------------------------------------------------


def initial_status(**status: Any) -> Callable[[Raw], None]:
    return lambda raw: raw.update(status=deepcopy(status))


def prepare_namespace(raw: Raw) -> None:
    raw["metadata"].setdefault("labels", {})["kubernetes.io/metadata.name"] = raw["metadata"]["name"]
    finalizers = (raw.get("spec") or {}).get("finalizers") or []
    raw["spec"] = {"finalizers": finalizers if "kubernetes" in finalizers else [*finalizers, "kubernetes"]}
    raw["status"] = {"phase": "Active"}


def keep_namespace(raw: Raw, old: Raw) -> None:
    """Its finalizers change by `finalize` alone, its name's label never."""
    raw["metadata"].setdefault("labels", {})["kubernetes.io/metadata.name"] = old["metadata"]["name"]
    raw["spec"] = deepcopy(old.get("spec") or {})


def prepare_pvc(raw: Raw) -> None:
    storage_validation.prepare_claim_source(raw)
    raw["status"] = {"phase": "Pending"}
    finalizers = raw["metadata"].setdefault("finalizers", [])
    if "kubernetes.io/pvc-protection" not in finalizers:
        finalizers.append("kubernetes.io/pvc-protection")


def prepare_binding(raw: Raw) -> None:
    for subject in raw.get("subjects") or ():
        if subject.get("kind") in ("User", "Group"):
            subject.setdefault("apiGroup", RBAC)


def fold_string_data(raw: Raw) -> None:
    """A Secret's write-only `stringData` becomes `data`."""
    plain = raw.pop("stringData", None)
    if plain:
        data = raw["data"] = dict(raw.get("data") or {})
        data.update({key: encode_base64(str(text)) for key, text in plain.items()})


# --- Events: stored as `v1`, served as `events.k8s.io/v1` too ------------------------------------------------------------

# field of events.k8s.io/v1 -> field of v1
_EVENT_NAMES = {
    "regarding": "involvedObject",
    "note": "message",
    "reportingController": "reportingComponent",
    "deprecatedSource": "source",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedCount": "count",
}
_CORE_EVENT_NAMES = {old: new for new, old in _EVENT_NAMES.items()}


def renamed(names: Mapping[str, str]) -> Callable[[Raw], Raw]:
    """A conversion that only renames top-level fields."""
    return lambda raw: {names.get(name, name): value for name, value in raw.items()}


_EVENT_FIELDS = fields(
    "involvedObject.kind",
    "involvedObject.namespace",
    "involvedObject.name",
    "involvedObject.uid",
    "involvedObject.apiVersion",
    "involvedObject.resourceVersion",
    "involvedObject.fieldPath",
    "reason",
    "reportingComponent",
    "type",
) | {"source": ("source", "component")}


# --- the table ----------------------------------------------------------------------------------------------------------


def _type(kind: ApiResource, short: str = "", subresources: str = "", **rest: Any) -> ResourceType:
    """`short` and `subresources` are names separated by spaces."""
    rest.setdefault("schema", object_schema())
    rest.setdefault("columns", COLUMNS_BY_RESOURCE.get(kind.plural, DEFAULT_COLUMNS))
    rest["selectable_fields"] = {**METADATA_FIELDS, **rest.get("selectable_fields", {})}
    return ResourceType(
        kind, short_names=tuple(short.split()), subresources=frozenset(subresources.split()), **rest
    )


def _workload(
    kind: ApiResource,
    short: str,
    spec: Raw,
    validate: Validate | None = None,
    *,
    scales: bool = True,
    prepare_for_create: Callable[[Raw], None] | None = None,
) -> ResourceType:
    return _type(
        kind,
        short,
        "status scale" if scales else "status",
        validate=validate,
        prepare_for_create=prepare_for_create,
        categories=("all",),
        has_generation=True,
        scale=ScalePaths(("spec", "replicas"), ("status", "replicas"), ("spec", "selector"))
        if scales
        else None,
        schema=object_schema(spec=spec, status=STATUS),
    )


REVIEW_TYPES: tuple[ResourceType, ...] = tuple(
    ResourceType(kind, verbs=("create",))
    for kind in (
        resources.SELF_SUBJECT_ACCESS_REVIEW,
        resources.SUBJECT_ACCESS_REVIEW,
        resources.LOCAL_SUBJECT_ACCESS_REVIEW,
        ApiResource(AUTHZ, "v1", "SelfSubjectRulesReview", "selfsubjectrulesreviews", namespaced=False),
        ApiResource(AUTHN, "v1", "SelfSubjectReview", "selfsubjectreviews", namespaced=False),
        resources.TOKEN_REVIEW,
    )
)

BUILTINS: tuple[ResourceType, ...] = (
    _type(
        resources.NAMESPACE,
        "ns",
        "status finalize",
        name_rule="label",
        prepare_for_create=prepare_namespace,
        prepare_for_update=keep_namespace,
        validate=validation.validate_namespace,
        selectable_fields=fields("status.phase"),
        schema=object_schema(status=STATUS),
        returns_deleted_object=True,
        verbs=tuple(verb for verb in VERBS if verb != "deletecollection"),
    ),
    _type(
        resources.NODE,
        "no",
        "status",
        keeps_status_on_create=True,
        selectable_fields=fields("spec.unschedulable"),
        schema=object_schema(
            spec=open_object(taints=keyed_list("key", list_type="atomic")),
            status=open_object(conditions=CONDITIONS, addresses=keyed_list("type")),
        ),
    ),
    _type(
        resources.POD,
        "po",
        "status eviction binding log ephemeralcontainers",
        validate=validation.validate_pod,
        categories=("all",),
        prepare_for_create=initial_status(phase="Pending", qosClass="BestEffort"),
        returns_deleted_object=True,
        selectable_fields=fields(
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "status.phase",
            "status.podIP",
            "status.nominatedNodeName",
            "spec.hostNetwork",
        ),
        schema=object_schema(
            spec=POD_SPEC, status=open_object(conditions=CONDITIONS, podIPs=keyed_list("ip"))
        ),
    ),
    _type(
        resources.SECRET,
        validate=validation.validate_secret,
        schema=closed_object_schema(
            type=with_default(STRING, "Opaque"), data=STRING_MAP, stringData=STRING_MAP, immutable=BOOLEAN
        ),
        selectable_fields=fields("type"),
        prepare_for_create=fold_string_data,
    ),
    _type(
        resources.CONFIG_MAP,
        "cm",
        validate=validation.validate_config_map,
        schema=closed_object_schema(data=STRING_MAP, binaryData=STRING_MAP, immutable=BOOLEAN),
    ),
    _type(
        resources.SERVICE,
        "svc",
        "status",
        allows_create_on_update=True,
        validate=validate_service,
        categories=("all",),
        name_rule="label",
        prepare_for_create=initial_status(loadBalancer={}),
        returns_deleted_object=True,
        selectable_fields=fields("spec.clusterIP", "spec.type"),
        schema=object_schema(spec=SERVICE_SPEC, status=STATUS),
    ),
    _type(ApiResource("", "v1", "Endpoints", "endpoints"), "ep", singular="endpoints"),
    _type(
        ApiResource("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices"),
        schema=object_schema(endpoints=atomic_list(), ports=atomic_list()),
    ),
    _type(
        resources.SERVICE_ACCOUNT,
        "sa",
        "token",
        returns_deleted_object=True,
        schema=object_schema(secrets=keyed_list("name"), imagePullSecrets=keyed_list("name")),
    ),
    _type(resources.EVENT, "ev", selectable_fields=_EVENT_FIELDS, schema=object_schema(type=STRING)),
    _type(
        ApiResource("events.k8s.io", "v1", "Event", "events"),
        "ev",
        stored_as=resources.EVENT,
        from_storage=renamed(_CORE_EVENT_NAMES),
        to_storage=renamed(_EVENT_NAMES),
        selectable_fields=fields("reason", "type", "regarding.name", "regarding.kind", "regarding.uid"),
        schema=object_schema(type=STRING),
    ),
    _type(
        resources.PVC,
        "pvc",
        "status",
        validate=storage_validation.validate_claim,
        validates_again=True,
        prepare_for_create=prepare_pvc,
        returns_deleted_object=True,
        schema=object_schema(
            spec=open_object(volumeMode=with_default(STRING, "Filesystem"), accessModes=atomic_list(STRING)),
            status=STATUS,
        ),
    ),
    _type(
        ApiResource("", "v1", "PersistentVolume", "persistentvolumes", namespaced=False),
        "pv",
        "status",
        prepare_for_create=initial_status(phase="Pending"),
        returns_deleted_object=True,
        schema=object_schema(
            spec=open_object(
                volumeMode=with_default(STRING, "Filesystem"),
                persistentVolumeReclaimPolicy=with_default(STRING, "Retain"),
            )
        ),
    ),
    _type(
        ApiResource("", "v1", "ResourceQuota", "resourcequotas"),
        "quota",
        "status",
        validate=quota_validation.validate_quota,
        returns_deleted_object=True,
    ),
    _type(ApiResource("", "v1", "LimitRange", "limitranges"), "limits"),
    _type(resources.LEASE, allows_create_on_update=True),
    _type(
        resources.STORAGE_CLASS,
        "sc",
        validate=storage_validation.validate_storage_class,
        schema=STORAGE_CLASS,
        returns_deleted_object=True,
    ),
    _type(resources.VOLUME_ATTACHMENT, "", "status", returns_deleted_object=True),
    *(
        _type(
            ApiResource("storage.k8s.io", "v1", kind, f"{kind.lower()}s", namespaced=False),
            returns_deleted_object=True,
        )
        for kind in ("CSIDriver", "CSINode")
    ),
    *(
        _type(kind, allows_create_on_update=True, name_rule="path", schema=object_schema(rules=ROLE_RULES))
        for kind in (resources.ROLE, resources.CLUSTER_ROLE)
    ),
    *(
        _type(
            kind,
            allows_create_on_update=True,
            prepare_for_create=prepare_binding,
            validate=validation.validate_binding,
            name_rule="path",
            schema={**object_schema(roleRef=ROLE_REF, subjects=atomic_list()), "required": ["roleRef"]},
        )
        for kind in (resources.ROLE_BINDING, resources.CLUSTER_ROLE_BINDING)
    ),
    _type(
        resources.CRD,
        "crd crds",
        "status",
        categories=("api-extensions",),
        has_generation=True,
        prepare_for_create=crds.prepare_crd,
        validate=crds.validate_crd,
        schema=object_schema(status=STATUS),
    ),
    _workload(
        resources.DEPLOYMENT,
        "deploy",
        open_object(
            replicas=REPLICAS,
            selector=SELECTOR,
            template=TEMPLATE,
            strategy=open_object(type=STRING, rollingUpdate=open_object()),
        ),
        workload_validation.validate_deployment,
    ),
    _workload(
        resources.DAEMON_SET,
        "ds",
        open_object(selector=SELECTOR, template=TEMPLATE),
        workload_validation.validate_daemon_set,
        scales=False,
    ),
    _workload(resources.REPLICA_SET, "rs", REPLICATED, workload_validation.validate_replica_set),
    _workload(resources.STATEFUL_SET, "sts", REPLICATED, workload_validation.validate_stateful_set),
    _type(
        resources.CONTROLLER_REVISION,
        schema=object_schema(revision=INTEGER, data={"type": "object", PRESERVE: True}),
    ),
    _workload(
        resources.JOB,
        "",
        JOB_SPEC,
        workload_validation.validate_job,
        prepare_for_create=workload_validation.prepare_job,
        scales=False,
    ),
    _type(
        ApiResource("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets"),
        "pdb",
        "status",
        has_generation=True,
        schema=object_schema(status=STATUS),
    ),
    *REVIEW_TYPES,
)
