"""The built-in types, as a table: names, subresources, the bits of schema that matter, and printer columns."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

from windrow.apiserver import crds, events, reviews, rules, workload_rules
from windrow.apiserver.columns import COLUMNS, PLAIN
from windrow.apiserver.crds import EVERY_FIELD
from windrow.apiserver.schema import LIST_KEYS, LIST_TYPE, PATCH_KEY, PATCH_STRATEGY, PRESERVE
from windrow.apiserver.services.rules import service_faults
from windrow.apiserver.types import VERBS, Scaling, Type
from windrow.kubernetes import resources
from windrow.kubernetes.resources import ApiResource

Raw = dict[str, Any]


# --- schema bits ----------------------------------------------------------------------------------------------------


def thing(required: tuple[str, ...] = (), **fields: Any) -> Raw:
    """An object of which only `fields` are written down; all else is kept as it comes."""
    made: Raw = {"type": "object", PRESERVE: True}
    if fields:
        made["properties"] = fields
    if required:
        made["required"] = list(required)
    return made


def by(
    key: str,
    item: Raw | None = None,
    *,
    strategy: str = "merge",
    keys: tuple[str, ...] = (),
    list_type: str = "map",
) -> Raw:
    """A list whose items are told apart by `key`."""
    made: Raw = {"type": "array", "items": item or thing(), PATCH_STRATEGY: strategy, PATCH_KEY: key}
    if list_type == "map":
        made[LIST_KEYS] = list(keys or (key,))
    return {**made, LIST_TYPE: list_type}


def listing(item: Raw | None = None) -> Raw:
    """A list that is one value."""
    return {"type": "array", "items": item or {PRESERVE: True}, LIST_TYPE: "atomic"}


def words(**rest: Any) -> Raw:
    return {"type": "array", "items": {"type": "string"}, **rest}


TEXT: Raw = {"type": "string"}
NUMBER: Raw = {"type": "integer"}
FLAG: Raw = {"type": "boolean"}
TEXTS: Raw = {"type": "object", "additionalProperties": {"type": "string"}}
MERGED_WORDS: Raw = words(**{PATCH_STRATEGY: "merge", LIST_TYPE: "set"})
CONDITIONS: Raw = by("type")
OWNERS: Raw = by("uid")
METADATA: Raw = thing(ownerReferences=OWNERS, finalizers=MERGED_WORDS)


def whole(**fields: Any) -> Raw:
    """The schema of a built-in object."""
    return thing(metadata=METADATA, **fields)


def defaulted(schema: Raw, value: Any) -> Raw:
    return {**schema, "default": value}


CONTAINER: Raw = thing(
    ("name",),
    name=TEXT,
    # Server-side apply keys ports by number and protocol; a strategic patch by number alone.
    ports=by("containerPort", thing(protocol=defaulted(TEXT, "TCP")), keys=("containerPort", "protocol")),
    env=by("name"),
    volumeMounts=by("mountPath"),
    volumeDevices=by("devicePath"),
)
POD_SPEC: Raw = thing(
    containers=by("name", CONTAINER),
    initContainers=by("name", CONTAINER),
    ephemeralContainers=by("name", CONTAINER),
    volumes=by("name", strategy="merge,retainKeys"),
    imagePullSecrets=by("name"),
    hostAliases=by("ip"),
    tolerations=listing(),
    restartPolicy=defaulted(TEXT, "Always"),
    dnsPolicy=defaulted(TEXT, "ClusterFirst"),
    schedulerName=defaulted(TEXT, "default-scheduler"),
    terminationGracePeriodSeconds=defaulted(NUMBER, 30),
)
TEMPLATE: Raw = thing(metadata=thing(labels=TEXTS), spec=POD_SPEC)
SELECTOR: Raw = thing(matchLabels=TEXTS, matchExpressions=listing(thing(("key", "operator"))))
COUNTED: Raw = whole(
    spec=thing(replicas=defaulted(NUMBER, 1), selector=SELECTOR, template=TEMPLATE),
    status=thing(conditions=CONDITIONS),
)
ROLE_RULES: Raw = listing(thing(("verbs",), verbs=words()))
ROLE_REF: Raw = thing(
    ("kind", "name"), apiGroup=defaulted(TEXT, "rbac.authorization.k8s.io"), kind=TEXT, name=TEXT
)


def fields(*paths: str) -> dict[str, tuple[str, ...]]:
    return {path: tuple(path.split(".")) for path in paths}


# --- what the server itself writes on create -------------------------------------------------------------------------


def begin_namespace(raw: Raw) -> None:
    raw["metadata"].setdefault("labels", {})["kubernetes.io/metadata.name"] = raw["metadata"]["name"]
    raw["spec"] = {"finalizers": ["kubernetes"]}
    raw["status"] = {"phase": "Active"}


def begin_pod(raw: Raw) -> None:
    raw["status"] = {"phase": "Pending", "qosClass": "BestEffort"}


def begin_claim(raw: Raw) -> None:
    raw["status"] = {"phase": "Pending"}
    finalizers = raw["metadata"].setdefault("finalizers", [])
    if "kubernetes.io/pvc-protection" not in finalizers:
        finalizers.append("kubernetes.io/pvc-protection")


def begin_volume(raw: Raw) -> None:
    raw["status"] = {"phase": "Pending"}


def begin_service(raw: Raw) -> None:
    raw["status"] = {"loadBalancer": {}}


def begin_binding(raw: Raw) -> None:
    for subject in raw.get("subjects") or ():
        if subject.get("kind") in ("User", "Group"):
            subject.setdefault("apiGroup", RBAC)


def begin_secret(raw: Raw) -> None:
    fold_string_data(raw)


def fold_string_data(raw: Raw) -> None:
    """`stringData` is write-only: it becomes `data`."""
    plain = raw.pop("stringData", None)
    if plain:
        data = raw["data"] = dict(raw.get("data") or {})
        data.update({key: b64encode(str(text).encode()).decode() for key, text in plain.items()})


def _type(kind: ApiResource, **rest: Any) -> Type:
    rest.setdefault("schema", whole())
    rest.setdefault("columns", COLUMNS.get(kind.plural, PLAIN))
    rest["selectable"] = {**EVERY_FIELD, **rest.get("selectable", {})}
    return Type(kind, **rest)


STATUS = frozenset({"status"})
SCALED = frozenset({"status", "scale"})
REPLICAS = Scaling(("spec", "replicas"), ("status", "replicas"), ("spec", "selector"))
RBAC = "rbac.authorization.k8s.io"

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

BUILTINS: tuple[Type, ...] = (
    _type(
        resources.NAMESPACE,
        short=("ns",),
        subresources=frozenset({"status", "finalize"}),
        names="label",
        begin=begin_namespace,
        selectable=fields("status.phase"),
        schema=whole(status=thing(conditions=CONDITIONS)),
        returns_deleted=True,
        verbs=tuple(verb for verb in VERBS if verb != "deletecollection"),
    ),
    _type(
        resources.NODE,
        short=("no",),
        subresources=STATUS,
        keeps_status=True,
        selectable=fields("spec.unschedulable"),
        schema=whole(
            spec=thing(taints=by("key", list_type="atomic")),
            status=thing(conditions=CONDITIONS, addresses=by("type")),
        ),
    ),
    _type(
        resources.POD,
        check=rules.pod,
        short=("po",),
        categories=("all",),
        subresources=frozenset({"status", "eviction", "binding", "log", "ephemeralcontainers"}),
        begin=begin_pod,
        returns_deleted=True,
        selectable=fields(
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "status.phase",
            "status.podIP",
            "status.nominatedNodeName",
            "spec.hostNetwork",
        ),
        schema=whole(spec=POD_SPEC, status=thing(conditions=CONDITIONS, podIPs=by("ip"))),
    ),
    _type(
        resources.SECRET,
        check=rules.secret,
        schema=whole(type=defaulted(TEXT, "Opaque"), data=TEXTS, stringData=TEXTS, immutable=FLAG),
        selectable=fields("type"),
        begin=begin_secret,
    ),
    _type(
        resources.CONFIG_MAP,
        check=rules.config_map,
        short=("cm",),
        schema=whole(data=TEXTS, binaryData=TEXTS, immutable=FLAG),
    ),
    _type(
        resources.SERVICE,
        upserts=True,
        check=service_faults,
        short=("svc",),
        categories=("all",),
        subresources=STATUS,
        names="label",
        begin=begin_service,
        returns_deleted=True,
        selectable=fields("spec.clusterIP", "spec.type"),
        schema=whole(
            spec=thing(
                type=defaulted(TEXT, "ClusterIP"),
                sessionAffinity=defaulted(TEXT, "None"),
                clusterIP=TEXT,
                clusterIPs=listing(TEXT),
                ipFamilies=listing(TEXT),
                ipFamilyPolicy=TEXT,
                externalIPs=listing(TEXT),
                externalTrafficPolicy=TEXT,
                healthCheckNodePort=NUMBER,
                allocateLoadBalancerNodePorts=FLAG,
                loadBalancerClass=TEXT,
                ports=by(
                    "port",
                    thing(
                        ("port",), name=TEXT, port=NUMBER, nodePort=NUMBER, protocol=defaulted(TEXT, "TCP")
                    ),
                    keys=("port", "protocol"),
                ),
            ),
            status=thing(conditions=CONDITIONS),
        ),
    ),
    _type(ApiResource("", "v1", "Endpoints", "endpoints"), short=("ep",), singular="endpoints"),
    _type(
        ApiResource("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices"),
        schema=whole(endpoints=listing(), ports=listing()),
    ),
    _type(
        resources.SERVICE_ACCOUNT,
        short=("sa",),
        subresources=frozenset({"token"}),
        returns_deleted=True,
        schema=whole(secrets=by("name"), imagePullSecrets=by("name")),
    ),
    _type(resources.EVENT, short=("ev",), selectable=_EVENT_FIELDS, schema=whole(type=TEXT)),
    _type(
        ApiResource("events.k8s.io", "v1", "Event", "events"),
        short=("ev",),
        stored=resources.EVENT,
        read=events.from_core,
        write=events.to_core,
        selectable={"reason": ("reason",), "type": ("type",), "regarding.name": ("regarding", "name")}
        | {"regarding.kind": ("regarding", "kind"), "regarding.uid": ("regarding", "uid")},
        schema=whole(type=TEXT),
    ),
    _type(
        resources.PVC,
        check=rules.claim,
        short=("pvc",),
        subresources=STATUS,
        begin=begin_claim,
        returns_deleted=True,
        schema=whole(
            spec=thing(volumeMode=defaulted(TEXT, "Filesystem"), accessModes=listing(TEXT)),
            status=thing(conditions=CONDITIONS),
        ),
    ),
    _type(
        ApiResource("", "v1", "PersistentVolume", "persistentvolumes", namespaced=False),
        short=("pv",),
        subresources=STATUS,
        begin=begin_volume,
        returns_deleted=True,
        schema=whole(
            spec=thing(
                volumeMode=defaulted(TEXT, "Filesystem"),
                persistentVolumeReclaimPolicy=defaulted(TEXT, "Retain"),
            )
        ),
    ),
    _type(
        ApiResource("", "v1", "ResourceQuota", "resourcequotas"),
        short=("quota",),
        subresources=STATUS,
        returns_deleted=True,
    ),
    _type(ApiResource("", "v1", "LimitRange", "limitranges"), short=("limits",)),
    _type(
        resources.LEASE,
        upserts=True,
    ),
    _type(
        resources.STORAGE_CLASS,
        check=rules.storage_class,
        short=("sc",),
        schema={
            **whole(
                provisioner=TEXT,
                parameters=TEXTS,
                reclaimPolicy=defaulted(TEXT, "Delete"),
                volumeBindingMode=defaulted(TEXT, "Immediate"),
            ),
            "required": ["provisioner"],
        },
        returns_deleted=True,
    ),
    _type(resources.VOLUME_ATTACHMENT, subresources=STATUS, returns_deleted=True),
    _type(
        ApiResource("storage.k8s.io", "v1", "CSIDriver", "csidrivers", namespaced=False), returns_deleted=True
    ),
    _type(ApiResource("storage.k8s.io", "v1", "CSINode", "csinodes", namespaced=False), returns_deleted=True),
    _type(resources.ROLE, upserts=True, names="path", schema=whole(rules=ROLE_RULES)),
    _type(resources.CLUSTER_ROLE, upserts=True, names="path", schema=whole(rules=ROLE_RULES)),
    _type(
        resources.ROLE_BINDING,
        upserts=True,
        begin=begin_binding,
        check=rules.binding,
        names="path",
        schema={**whole(roleRef=ROLE_REF, subjects=listing()), "required": ["roleRef"]},
    ),
    _type(
        resources.CLUSTER_ROLE_BINDING,
        upserts=True,
        begin=begin_binding,
        check=rules.binding,
        names="path",
        schema={**whole(roleRef=ROLE_REF, subjects=listing()), "required": ["roleRef"]},
    ),
    _type(
        resources.CRD,
        short=("crd", "crds"),
        categories=("api-extensions",),
        subresources=STATUS,
        counts=True,
        begin=crds.begin,
        check=crds.faults,
        schema=whole(status=thing(conditions=CONDITIONS)),
    ),
    _type(
        resources.DEPLOYMENT,
        check=workload_rules.deployment,
        short=("deploy",),
        categories=("all",),
        subresources=SCALED,
        scaling=REPLICAS,
        counts=True,
        schema=whole(
            spec=thing(
                replicas=defaulted(NUMBER, 1),
                selector=SELECTOR,
                template=TEMPLATE,
                strategy=thing(type=TEXT, rollingUpdate=thing()),
            ),
            status=thing(conditions=CONDITIONS),
        ),
    ),
    _type(
        resources.DAEMON_SET,
        check=workload_rules.daemon_set,
        short=("ds",),
        categories=("all",),
        subresources=STATUS,
        counts=True,
        schema=whole(spec=thing(selector=SELECTOR, template=TEMPLATE), status=thing(conditions=CONDITIONS)),
    ),
    _type(
        resources.REPLICA_SET,
        check=workload_rules.replica_set,
        short=("rs",),
        categories=("all",),
        subresources=SCALED,
        scaling=REPLICAS,
        counts=True,
        schema=COUNTED,
    ),
    _type(
        resources.STATEFUL_SET,
        check=workload_rules.stateful_set,
        short=("sts",),
        categories=("all",),
        subresources=SCALED,
        scaling=REPLICAS,
        counts=True,
        schema=COUNTED,
    ),
    _type(
        ApiResource("batch", "v1", "Job", "jobs"),
        categories=("all",),
        subresources=STATUS,
        counts=True,
        schema=whole(spec=thing(template=TEMPLATE), status=thing(conditions=CONDITIONS)),
    ),
    _type(
        ApiResource("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets"),
        short=("pdb",),
        subresources=STATUS,
        counts=True,
        schema=whole(status=thing(conditions=CONDITIONS)),
    ),
    *reviews.TYPES,
)
