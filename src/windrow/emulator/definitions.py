"""The CustomResourceDefinitions of a Harvester cluster, written by our own hands.

Facts: reference 05 §1.2–1.3. Schemas are strict where a client can notice (required fields, enums, defaults, printer
columns, status subresource or not) and open elsewhere: KubeVirt's thousand fields are kept as they come.
"""

from __future__ import annotations

from collections.abc import Sequence

from windrow.emulator import kinds
from windrow.kubernetes.objects import Raw
from windrow.kubernetes.resources import CRD, ApiResource

TEXT: Raw = {"type": "string"}
TRUTH: Raw = {"type": "boolean"}
WHOLE: Raw = {"type": "integer"}
BIG: Raw = {"type": "integer", "format": "int64"}
TEXTS: Raw = {"type": "object", "additionalProperties": TEXT}
OPEN: Raw = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}

Column = tuple[str, str, str] | tuple[str, str, str, int]
AGE: Column = ("Age", ".metadata.creationTimestamp", "date")
LOUD_AGE: Column = ("AGE", ".metadata.creationTimestamp", "date")
READY = '.status.conditions[?(@.type=="Ready")].status'


def record(required: Sequence[str] = (), **properties: Raw) -> Raw:
    """The schema of an object with these fields and no others."""
    made: Raw = {"type": "object", "properties": properties}
    return {**made, "required": list(required)} if required else made


def open_record(required: Sequence[str] = (), **properties: Raw) -> Raw:
    """The schema of an object with these fields and any others."""
    return {**record(required, **properties), "x-kubernetes-preserve-unknown-fields": True}


def listed(items: Raw) -> Raw:
    return {"type": "array", "items": items}


def one_of(*values: str, default: str = "") -> Raw:
    made: Raw = {"type": "string", "enum": list(values)}
    return {**made, "default": default} if default else made


WRANGLER_CONDITIONS = listed(
    record(
        ["status", "type"],
        type=TEXT,
        status=TEXT,
        reason=TEXT,
        message=TEXT,
        lastTransitionTime=TEXT,
        lastUpdateTime=TEXT,
    )
)

# KubeVirt writes null times (reference 05 §2.4).
_TIME: Raw = {"type": "string", "nullable": True, "format": "date-time"}
KUBEVIRT_CONDITIONS = listed(
    record(
        ["status", "type"],
        type=TEXT,
        status=TEXT,
        reason=TEXT,
        message=TEXT,
        lastTransitionTime=_TIME,
        lastProbeTime=_TIME,
    )
)

TEMPLATE = record(metadata=OPEN, spec=open_record(["domain"], domain=open_record(["devices"], devices=OPEN)))


def definition(
    kind: ApiResource,
    *,
    short: Sequence[str] = (),
    columns: Sequence[Column] = (),
    fields: Raw | None = None,
    required: Sequence[str] = (),
    status: bool = False,
    categories: Sequence[str] = (),
    singular: str = "",
    also: Sequence[str] = (),
) -> Raw:
    """A CRD. `fields` are its top-level properties (spec, status, …); `also` lists further served versions."""
    schema = record(
        required,
        apiVersion=TEXT,
        kind=TEXT,
        metadata={"type": "object"},
        **(fields or {"spec": OPEN, "status": OPEN}),
    )
    names: Raw = {
        "kind": kind.kind,
        "listKind": f"{kind.kind}List",
        "plural": kind.plural,
        "singular": singular or kind.kind.lower(),
    }
    if short:
        names["shortNames"] = list(short)
    if categories:
        names["categories"] = list(categories)

    def version(name: str) -> Raw:
        made: Raw = {
            "name": name,
            "served": True,
            "storage": name == kind.version,
            "schema": {"openAPIV3Schema": schema},
        }
        if columns:
            made["additionalPrinterColumns"] = [_column(*column) for column in columns]
        if status:
            made["subresources"] = {"status": {}}
        return made

    return {
        "apiVersion": CRD.api_version,
        "kind": CRD.kind,
        "metadata": {"name": kind.group_resource},
        "spec": {
            "group": kind.group,
            "names": names,
            "scope": "Namespaced" if kind.namespaced else "Cluster",
            "versions": [version(name) for name in (kind.version, *also)],
        },
    }


def _column(name: str, path: str, type: str, priority: int = 0) -> Raw:
    made: Raw = {"name": name, "jsonPath": path, "type": type}
    return {**made, "priority": priority} if priority else made


def crds() -> list[Raw]:
    """The CustomResourceDefinitions of a Harvester 1.8 cluster."""
    return [*_kubevirt(), *_harvester(), *_networks(), *_balancers()]


def _kubevirt() -> list[Raw]:
    return [
        definition(
            kinds.VM,
            short=["vm", "vms"],
            categories=["all"],
            columns=[
                AGE,
                ("Status", ".status.printableStatus", "string"),
                ("Ready", READY, "string"),
            ],
            fields={
                "spec": record(
                    ["template"],
                    template=TEMPLATE,
                    runStrategy=TEXT,
                    running=TRUTH,
                    dataVolumeTemplates=listed(OPEN),
                    instancetype=OPEN,
                    preference=OPEN,
                    updateVolumesStrategy=TEXT,
                ),
                "status": open_record(
                    created=TRUTH,
                    ready=TRUTH,
                    printableStatus={"type": "string", "default": "Stopped"},
                    runStrategy=TEXT,
                    conditions=KUBEVIRT_CONDITIONS,
                    stateChangeRequests=listed(record(["action"], action=TEXT, uid=TEXT, data=TEXTS)),
                    observedGeneration=BIG,
                    desiredGeneration=BIG,
                ),
            },
            required=["spec"],
            status=True,
        ),
        definition(
            kinds.VMI,
            short=["vmi", "vmis"],
            categories=["all"],
            columns=[
                AGE,
                ("Phase", ".status.phase", "string"),
                ("IP", ".status.interfaces[0].ipAddress", "string"),
                ("NodeName", ".status.nodeName", "string"),
                ("Ready", READY, "string"),
                ("Live-Migratable", '.status.conditions[?(@.type=="LiveMigratable")].status', "string", 1),
                ("Paused", '.status.conditions[?(@.type=="Paused")].status', "string", 1),
            ],
            fields={
                "spec": open_record(["domain"], domain=OPEN),
                "status": open_record(
                    phase=TEXT,
                    nodeName=TEXT,
                    reason=TEXT,
                    conditions=KUBEVIRT_CONDITIONS,
                    interfaces=listed(OPEN),
                    activePods=TEXTS,
                ),
            },
            required=["spec"],
        ),
        definition(
            kinds.MIGRATION,
            short=["vmim", "vmims"],
            categories=["all"],
            columns=[("Phase", ".status.phase", "string"), ("VMI", ".spec.vmiName", "string")],
            fields={"spec": record(vmiName=TEXT, addedNodeSelector=TEXTS, priority=TEXT), "status": OPEN},
            required=["spec"],
            status=True,
        ),
        definition(
            kinds.KUBEVIRT,
            short=["kv", "kvs"],
            categories=["all"],
            columns=[AGE, ("Phase", ".status.phase", "string")],
            status=True,
        ),
    ]


def _harvester() -> list[Raw]:
    return [
        definition(
            kinds.IMAGE,
            short=["vmimage", "vmimages"],
            columns=[
                ("BACKEND", ".spec.backend", "string"),
                ("DISPLAY-NAME", ".spec.displayName", "string"),
                ("SIZE", ".status.size", "integer"),
                ("VIRTUALSIZE", ".status.virtualSize", "integer"),
                LOUD_AGE,
            ],
            fields={
                "spec": record(
                    ["displayName", "sourceType"],
                    backend=one_of("backingimage", "cdi", default="backingimage"),
                    checksum=TEXT,
                    description=TEXT,
                    displayName=TEXT,
                    pvcName=TEXT,
                    pvcNamespace=TEXT,
                    retry={"type": "integer", "default": 3, "minimum": 0, "maximum": 10},
                    securityParameters=record(
                        ["cryptoOperation", "sourceImageName", "sourceImageNamespace"],
                        cryptoOperation=one_of("encrypt", "decrypt"),
                        sourceImageName=TEXT,
                        sourceImageNamespace=TEXT,
                    ),
                    sourceType=one_of("download", "upload", "export-from-volume", "restore", "clone"),
                    storageClassParameters=TEXTS,
                    targetStorageClassName=TEXT,
                    url=TEXT,
                ),
                "status": record(
                    appliedUrl=TEXT,
                    backupTarget=record(bucketName=TEXT, bucketRegion=TEXT, endpoint=TEXT),
                    conditions=WRANGLER_CONDITIONS,
                    failed={"type": "integer", "default": 0, "minimum": 0},
                    lastFailedTime=TEXT,
                    progress=WHOLE,
                    size=BIG,
                    storageClassName=TEXT,
                    targetStorageClassName=TEXT,
                    virtualSize=BIG,
                ),
            },
            required=["spec"],
        ),
        definition(
            kinds.KEY_PAIR,
            short=["kp", "kps"],
            columns=[("FINGER_PRINT", ".status.fingerPrint", "string"), LOUD_AGE],
            fields={
                "spec": record(["publicKey"], publicKey=TEXT),
                "status": record(conditions=WRANGLER_CONDITIONS, fingerPrint=TEXT),
            },
            required=["spec"],
        ),
        definition(
            kinds.SETTING,
            columns=[("VALUE", ".value", "string")],
            fields={
                "value": TEXT,
                "default": TEXT,
                "source": TEXT,
                "customized": TRUTH,
                "status": record(conditions=WRANGLER_CONDITIONS),
            },
        ),
        definition(
            kinds.SNAPSHOT_QUOTA,
            short=["hrq", "hrqs"],
            columns=[
                (
                    "NAMESPACE_TOTAL_SNAPSHOT_SIZE_QUOTA",
                    ".spec.snapshotLimit.namespaceTotalSnapshotSizeQuota",
                    "string",
                ),
                (
                    "NAMESPACE_TOTAL_SNAPSHOT_SIZE_USAGE",
                    ".status.snapshotLimitStatus.namespaceTotalSnapshotSizeUsage",
                    "string",
                ),
            ],
            status=True,
        ),
        definition(
            kinds.TEMPLATE,
            short=["vmtemplate", "vmtemplates"],
            columns=[
                ("VERSION_ID", ".spec.defaultVersionId", "string"),
                ("DESCRIPTION", ".spec.description", "string", 10),
                ("VERSION_DEFAULT", ".status.defaultVersion", "integer", 8),
                ("VERSION_LATEST", ".status.latestVersion", "integer", 8),
                LOUD_AGE,
            ],
            status=True,
        ),
        definition(
            kinds.TEMPLATE_VERSION,
            short=["vmtemplateversion", "vmtemplateversions"],
            columns=[
                ("TEMPLATE_ID", ".spec.templateId", "string"),
                ("DESCRIPTION", ".spec.description", "string"),
                ("VERSION", ".status.version", "integer"),
                LOUD_AGE,
            ],
        ),
    ]


def _networks() -> list[Raw]:
    return [
        definition(
            kinds.NAD,
            short=["net-attach-def"],
            singular="network-attachment-definition",
            fields={"spec": record(config=TEXT)},
        ),
        definition(kinds.CLUSTER_NETWORK, short=["cn"]),
    ]


SMALL: Raw = {"type": "integer", "format": "int32"}
_HEALTH = ("failureThreshold", "periodSeconds", "port", "successThreshold", "timeoutSeconds")
_OLD_HEALTH = ("PeriodSeconds", "failureThreshold", "port", "successThreshold", "timeoutSeconds")


def _listeners(*required: str) -> Raw:
    return listed(record(required, name=TEXT, port=SMALL, protocol=TEXT, backendPort=SMALL))


def _balancer() -> Raw:
    made = definition(
        kinds.LOAD_BALANCER,
        short=["lb", "lbs"],
        columns=[
            ("DESCRIPTION", ".spec.description", "string"),
            ("WORKLOADTYPE", ".spec.workloadType", "string"),
            ("IPAM", ".spec.ipam", "string"),
            ("ADDRESS", ".status.address", "string"),
            LOUD_AGE,
        ],
        fields={
            "spec": record(
                description=TEXT,
                workloadType=one_of("vm", "cluster"),
                ipam=one_of("pool", "dhcp"),
                ipPool=TEXT,
                listeners=_listeners("backendPort", "port", "protocol"),
                backendServerSelector={"type": "object", "additionalProperties": listed(TEXT)},
                healthCheck=record((), **dict.fromkeys(_HEALTH, WHOLE)),
            ),
            "status": record(
                address=TEXT,
                allocatedAddress=record(gateway=TEXT, ip=TEXT, ipPool=TEXT, mask=TEXT),
                backendServers=listed(TEXT),
                conditions=WRANGLER_CONDITIONS,
            ),
        },
        required=["spec"],
    )
    made["spec"]["versions"].insert(0, _first_version())
    return made


def _first_version() -> Raw:
    """v1alpha1: no pools, no workload types; the backends are listed. What is written so is kept as it is."""
    fields = {
        "apiVersion": TEXT,
        "kind": TEXT,
        "metadata": {"type": "object"},
        "spec": record(
            ["ipam"],
            backendServers=listed(TEXT),
            description=TEXT,
            healthCheck=record(_OLD_HEALTH, **dict.fromkeys(_OLD_HEALTH, WHOLE)),
            ipam=one_of("pool", "dhcp"),
            listeners=_listeners("name", "port", "protocol"),
        ),
        "status": record(address=TEXT, conditions=WRANGLER_CONDITIONS),
    }
    columns = [("DESCRIPTION", ".spec.description"), ("IPAM", ".spec.ipam"), ("ADDRESS", ".status.address")]
    return {
        "name": "v1alpha1",
        "served": True,
        "storage": False,
        "deprecated": True,
        "schema": {"openAPIV3Schema": {"type": "object", "properties": fields}},
        "additionalPrinterColumns": [
            {"name": name, "jsonPath": path, "type": "string"} for name, path in columns
        ],
    }


def _pool() -> Raw:
    scope = listed(record(guestCluster=TEXT, namespace=TEXT, project=TEXT))
    return definition(
        kinds.IP_POOL,
        short=["pool", "pools"],
        columns=[
            ("DESCRIPTION", ".spec.description", "string"),
            ("RANGES", ".spec.ranges", "string"),
            ("Priority", ".spec.selector.priority", "string"),
            LOUD_AGE,
        ],
        fields={
            "spec": record(
                ["ranges"],
                description=TEXT,
                ranges=listed(record(["subnet"], gateway=TEXT, rangeEnd=TEXT, rangeStart=TEXT, subnet=TEXT)),
                selector=record(network=TEXT, priority=SMALL, scope=scope),
            ),
            "status": record(
                ["available", "lastAllocated", "total"],
                allocated=TEXTS,
                allocatedHistory=TEXTS,
                available=BIG,
                conditions=WRANGLER_CONDITIONS,
                lastAllocated=TEXT,
                total=BIG,
            ),
        },
        required=["spec"],
    )


def _balancers() -> list[Raw]:
    """Neither has a status subresource: an update writes the status, too (reference 02 §4.1)."""
    return [_balancer(), _pool()]
