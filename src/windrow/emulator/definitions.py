"""The CustomResourceDefinitions of a Harvester cluster, written by our own hands.

Facts: reference 05 §1.2–1.3. Schemas are strict where a client can notice (required fields, enums, defaults, printer
columns, status subresource or not) and open elsewhere; that of a VirtualMachine's spec is KubeVirt's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from windrow.emulator import kinds
from windrow.emulator.kit.go_types import table
from windrow.kubernetes.objects import Raw
from windrow.kubernetes.resources import CRD, ApiResource

TEXT: Raw = {"type": "string"}
TRUTH: Raw = {"type": "boolean"}
WHOLE: Raw = {"type": "integer"}
SMALL: Raw = {"type": "integer", "format": "int32"}
BIG: Raw = {"type": "integer", "format": "int64"}
TEXTS: Raw = {"type": "object", "additionalProperties": TEXT}
OPEN: Raw = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}

# Name, path, type ("string" where it is left out), priority.
Column = tuple[str, str] | tuple[str, str, str] | tuple[str, str, str, int]
AGE: Column = ("Age", ".metadata.creationTimestamp", "date")
LOUD_AGE: Column = ("AGE", ".metadata.creationTimestamp", "date")


def fields(names: str, schema: Raw = TEXT) -> dict[str, Raw]:
    """One schema for several fields."""
    return dict.fromkeys(names.split(), schema)


def record(required: str = "", /, **properties: Raw) -> Raw:
    """The schema of an object with these fields and no others."""
    made: Raw = {"type": "object", "properties": properties}
    return {**made, "required": required.split()} if required else made


def open_record(required: str = "", /, **properties: Raw) -> Raw:
    """The schema of an object with these fields and any others."""
    return {**record(required, **properties), "x-kubernetes-preserve-unknown-fields": True}


def listed(items: Raw) -> Raw:
    return {"type": "array", "items": items}


def one_of(*values: str, default: str = "") -> Raw:
    made: Raw = {"type": "string", "enum": list(values)}
    return {**made, "default": default} if default else made


def condition_column(type: str) -> tuple[str, str]:
    """The path and type of a column with the status of a condition."""
    return f'.status.conditions[?(@.type=="{type}")].status', "string"


_CONDITION = fields("type status reason message")
WRANGLER_CONDITIONS = listed(
    record("status type", **_CONDITION, **fields("lastTransitionTime lastUpdateTime"))
)
# KubeVirt writes null times (reference 05 §2.4).
_TIME: Raw = {"type": "string", "nullable": True, "format": "date-time"}
KUBEVIRT_CONDITIONS = listed(
    record("status type", **_CONDITION, **fields("lastTransitionTime lastProbeTime", _TIME))
)


def definition(
    kind: ApiResource,
    short: str = "",
    columns: Sequence[Column] = (),
    *,
    spec: Raw | None = None,
    status: Raw = OPEN,
    others: Mapping[str, Raw] | None = None,
    has_status_subresource: bool = False,
    categories: Sequence[str] = (),
    singular: str = "",
) -> Raw:
    """A CRD. `spec` is required where it is given; `others` are top-level fields in place of spec and status."""
    properties = others or {"spec": spec or OPEN, "status": status}
    names: Raw = {
        "kind": kind.kind,
        "listKind": f"{kind.kind}List",
        "plural": kind.plural,
        "singular": singular or kind.kind.lower(),
    }
    if short:
        names["shortNames"] = short.split()
    if categories:
        names["categories"] = list(categories)
    version = _version(kind.version, properties, columns, required="spec" if spec else "")
    if has_status_subresource:
        version["subresources"] = {"status": {}}
    return {
        "apiVersion": CRD.api_version,
        "kind": CRD.kind,
        "metadata": {"name": kind.group_resource},
        "spec": {
            "group": kind.group,
            "names": names,
            "scope": "Namespaced" if kind.namespaced else "Cluster",
            "versions": [version],
        },
    }


def _version(name: str, properties: Mapping[str, Raw], columns: Sequence[Column], required: str = "") -> Raw:
    schema = record(required, **fields("apiVersion kind"), metadata={"type": "object"}, **properties)
    made: Raw = {"name": name, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    if columns:
        made["additionalPrinterColumns"] = [_column(*column) for column in columns]
    return made


def _column(name: str, path: str, type: str = "string", priority: int = 0) -> Raw:
    made: Raw = {"name": name, "jsonPath": path, "type": type}
    return {**made, "priority": priority} if priority else made


def crds() -> list[Raw]:
    """The CustomResourceDefinitions of a Harvester 1.8 cluster."""
    return [*_kubevirt(), *_harvester(), *_networks(), *_storage(), _load_balancer(), _ip_pool()]


def _kubevirt() -> list[Raw]:
    return [
        definition(
            kinds.VM,
            "vm vms",
            [AGE, ("Status", ".status.printableStatus"), ("Ready", *condition_column("Ready"))],
            categories=["all"],
            spec=table()["schema"],
            status=open_record(
                printableStatus={"type": "string", "default": "Stopped"},
                runStrategy=TEXT,
                conditions=KUBEVIRT_CONDITIONS,
                stateChangeRequests=listed(record("action", **fields("action uid"), data=TEXTS)),
                **fields("created ready", TRUTH),
                **fields("observedGeneration desiredGeneration", BIG),
            ),
            has_status_subresource=True,
        ),
        definition(
            kinds.VMI,
            "vmi vmis",
            [
                AGE,
                ("Phase", ".status.phase"),
                ("IP", ".status.interfaces[0].ipAddress"),
                ("NodeName", ".status.nodeName"),
                ("Ready", *condition_column("Ready")),
                ("Live-Migratable", *condition_column("LiveMigratable"), 1),
                ("Paused", *condition_column("Paused"), 1),
            ],
            categories=["all"],
            spec=open_record("domain", domain=OPEN),
            status=open_record(
                **fields("phase nodeName reason"),
                conditions=KUBEVIRT_CONDITIONS,
                interfaces=listed(OPEN),
                activePods=TEXTS,
            ),
        ),
        definition(
            kinds.MIGRATION,
            "vmim vmims",
            [("Phase", ".status.phase"), ("VMI", ".spec.vmiName")],
            categories=["all"],
            spec=record(**fields("vmiName priority"), addedNodeSelector=TEXTS),
            has_status_subresource=True,
        ),
        definition(
            kinds.KUBEVIRT,
            "kv kvs",
            [AGE, ("Phase", ".status.phase")],
            categories=["all"],
            has_status_subresource=True,
        ),
    ]


def _harvester() -> list[Raw]:
    return [
        definition(
            kinds.IMAGE,
            "vmimage vmimages",
            [
                ("BACKEND", ".spec.backend"),
                ("DISPLAY-NAME", ".spec.displayName"),
                ("SIZE", ".status.size", "integer"),
                ("VIRTUALSIZE", ".status.virtualSize", "integer"),
                LOUD_AGE,
            ],
            spec=record(
                "displayName sourceType",
                **fields("checksum description displayName pvcName pvcNamespace targetStorageClassName url"),
                backend=one_of("backingimage", "cdi", default="backingimage"),
                retry={"type": "integer", "default": 3, "minimum": 0, "maximum": 10},
                securityParameters=record(
                    "cryptoOperation sourceImageName sourceImageNamespace",
                    cryptoOperation=one_of("encrypt", "decrypt"),
                    **fields("sourceImageName sourceImageNamespace"),
                ),
                sourceType=one_of("download", "upload", "export-from-volume", "restore", "clone"),
                storageClassParameters=TEXTS,
            ),
            status=record(
                **fields("appliedUrl lastFailedTime storageClassName targetStorageClassName"),
                **fields("size virtualSize", BIG),
                backupTarget=record(**fields("bucketName bucketRegion endpoint")),
                conditions=WRANGLER_CONDITIONS,
                failed={"type": "integer", "default": 0, "minimum": 0},
                progress=WHOLE,
            ),
        ),
        definition(
            kinds.KEY_PAIR,
            "kp kps",
            [("FINGER_PRINT", ".status.fingerPrint"), LOUD_AGE],
            spec=record("publicKey", publicKey=TEXT),
            status=record(conditions=WRANGLER_CONDITIONS, fingerPrint=TEXT),
        ),
        definition(
            kinds.SETTING,
            columns=[("VALUE", ".value")],
            others={
                **fields("value default source"),
                "customized": TRUTH,
                "status": record(conditions=WRANGLER_CONDITIONS),
            },
        ),
        definition(
            kinds.SNAPSHOT_QUOTA,
            "hrq hrqs",
            [
                (
                    "NAMESPACE_TOTAL_SNAPSHOT_SIZE_QUOTA",
                    ".spec.snapshotLimit.namespaceTotalSnapshotSizeQuota",
                ),
                (
                    "NAMESPACE_TOTAL_SNAPSHOT_SIZE_USAGE",
                    ".status.snapshotLimitStatus.namespaceTotalSnapshotSizeUsage",
                ),
            ],
            others={
                "spec": record(
                    snapshotLimit=record(
                        namespaceTotalSnapshotSizeQuota={**BIG, "minimum": 0},
                        vmTotalSnapshotSizeQuota={"type": "object", "additionalProperties": BIG},
                    )
                ),
                "status": OPEN,
            },
            has_status_subresource=True,
        ),
        definition(
            kinds.TEMPLATE,
            "vmtemplate vmtemplates",
            [
                ("VERSION_ID", ".spec.defaultVersionId"),
                ("DESCRIPTION", ".spec.description", "string", 10),
                ("VERSION_DEFAULT", ".status.defaultVersion", "integer", 8),
                ("VERSION_LATEST", ".status.latestVersion", "integer", 8),
                LOUD_AGE,
            ],
            has_status_subresource=True,
        ),
        definition(
            kinds.TEMPLATE_VERSION,
            "vmtemplateversion vmtemplateversions",
            [
                ("TEMPLATE_ID", ".spec.templateId"),
                ("DESCRIPTION", ".spec.description"),
                ("VERSION", ".status.version", "integer"),
                LOUD_AGE,
            ],
            spec=record(
                "templateId",
                **fields("templateId imageId description"),
                keyPairIds=listed(TEXT),
                vm=record(metadata=OPEN, spec=table()["schema"]),
            ),
        ),
    ]


def _networks() -> list[Raw]:
    singular = "network-attachment-definition"
    spec = record(config=TEXT)
    return [
        definition(kinds.NAD, "net-attach-def", singular=singular, others={"spec": spec}),
        definition(kinds.CLUSTER_NETWORK, "cn"),
    ]


def _storage() -> list[Raw]:
    return [
        definition(
            kinds.SNAPSHOT_CLASS,
            "vsclass vsclasses",
            [("Driver", ".driver"), ("DeletionPolicy", ".deletionPolicy"), AGE],
            others={"driver": TEXT, "deletionPolicy": one_of("Delete", "Retain"), "parameters": TEXTS},
        ),
        definition(
            kinds.SNAPSHOT,
            "vs",
            [
                ("ReadyToUse", ".status.readyToUse", "boolean"),
                ("SourcePVC", ".spec.source.persistentVolumeClaimName"),
                ("SourceSnapshotContent", ".spec.source.volumeSnapshotContentName"),
                ("RestoreSize", ".status.restoreSize"),
                ("SnapshotClass", ".spec.volumeSnapshotClassName"),
                ("SnapshotContent", ".status.boundVolumeSnapshotContentName"),
                ("CreationTime", ".status.creationTime", "date"),
                AGE,
            ],
            spec=record(
                "source",
                source=record(**fields("persistentVolumeClaimName volumeSnapshotContentName")),
                volumeSnapshotClassName=TEXT,
            ),
            has_status_subresource=True,
        ),
        definition(
            kinds.SNAPSHOT_CONTENT,
            "vsc vscs",
            [
                ("ReadyToUse", ".status.readyToUse", "boolean"),
                ("RestoreSize", ".status.restoreSize", "integer"),
                ("DeletionPolicy", ".spec.deletionPolicy"),
                ("Driver", ".spec.driver"),
                ("VolumeSnapshotClass", ".spec.volumeSnapshotClassName"),
                ("VolumeSnapshot", ".spec.volumeSnapshotRef.name"),
                ("VolumeSnapshotNamespace", ".spec.volumeSnapshotRef.namespace"),
                AGE,
            ],
            spec=open_record("deletionPolicy driver source volumeSnapshotRef"),
            has_status_subresource=True,
        ),
        definition(
            kinds.REMOTE_BACKUP,
            columns=[
                ("type", ".spec.type"),
                ("source", ".spec.source"),
                ("Handle", ".status.handle"),
                ("Provider", ".status.csiProvider"),
                ("Success", ".status.success", "boolean"),
            ],
            spec=record("source type", source=TEXT, type=one_of("lh", default="lh")),
        ),
        definition(
            kinds.REMOTE_RESTORE,
            columns=[
                ("type", ".spec.type"),
                ("from", ".spec.from"),
                ("Success", ".status.success", "boolean"),
            ],
            spec=record("from type", **{"from": TEXT}, type=one_of("lh", default="lh")),
        ),
        definition(
            kinds.NETWORK_FILE_SYSTEM,
            "netfilesystem netfilesystems",
            [
                ("DesiredState", ".spec.desiredState"),
                ("Endpoint", ".status.endpoint"),
                ("State", ".status.state"),
                ("Status", ".status.status"),
                AGE,
            ],
            spec=open_record(**fields("networkFSName desiredState perferredNodes provisioner")),
            has_status_subresource=True,
        ),
        definition(
            kinds.LONGHORN_VOLUME,
            "lhv",
            [
                ("Data Engine", ".spec.dataEngine"),
                ("State", ".status.state"),
                ("Robustness", ".status.robustness"),
                ("Size", ".spec.size"),
                ("Node", ".status.currentNodeID"),
                AGE,
            ],
        ),
    ]


def vm_backup_crds() -> list[Raw]:
    """Of backups of VMs. Neither has a status subresource."""
    return [
        definition(
            kinds.VM_BACKUP,
            "vmbackup vmbackups",
            [
                ("SOURCE_KIND", ".spec.source.kind"),
                ("SOURCE_NAME", ".spec.source.name"),
                ("TYPE", ".spec.type"),
                ("READY_TO_USE", ".status.readyToUse", "boolean"),
                AGE,
                ("ERROR", ".status.error.message"),
            ],
            spec=record(
                "source",
                source=record("kind name", **fields("apiGroup kind name")),
                type=one_of("backup", "snapshot", default="backup"),
            ),
        ),
        definition(
            kinds.VM_RESTORE,
            "vmrestore vmrestores",
            [
                ("TARGET_KIND", ".spec.target.kind"),
                ("TARGET_NAME", ".spec.target.name"),
                ("COMPLETE", ".status.complete", "boolean"),
                AGE,
                ("ERROR", ".status.error.message"),
            ],
            spec=record(
                "target virtualMachineBackupName virtualMachineBackupNamespace",
                target=record("kind name", **fields("apiGroup kind name")),
                newVM={"type": "boolean"},
                keepMacAddress={"type": "boolean"},
                **fields("virtualMachineBackupName virtualMachineBackupNamespace deletionPolicy"),
            ),
        ),
    ]


# --- load balancers ---------------------------------------------------------------------------------------------
#
# Neither has a status subresource: an update writes the status, too (reference 02 §4.1).


def _listeners(required: str) -> Raw:
    return listed(record(required, **fields("name protocol"), **fields("port backendPort", SMALL)))


def _load_balancer() -> Raw:
    health = fields("failureThreshold periodSeconds port successThreshold timeoutSeconds", WHOLE)
    made = definition(
        kinds.LOAD_BALANCER,
        "lb lbs",
        [
            ("DESCRIPTION", ".spec.description"),
            ("WORKLOADTYPE", ".spec.workloadType"),
            ("IPAM", ".spec.ipam"),
            ("ADDRESS", ".status.address"),
            LOUD_AGE,
        ],
        spec=record(
            **fields("description ipPool"),
            workloadType=one_of("vm", "cluster"),
            ipam=one_of("pool", "dhcp"),
            listeners=_listeners("backendPort port protocol"),
            backendServerSelector={"type": "object", "additionalProperties": listed(TEXT)},
            healthCheck=record(**health),
        ),
        status=record(
            address=TEXT,
            allocatedAddress=record(**fields("gateway ip ipPool mask")),
            backendServers=listed(TEXT),
            conditions=WRANGLER_CONDITIONS,
        ),
    )
    made["spec"]["versions"].insert(0, _load_balancer_v1alpha1())
    return made


def _load_balancer_v1alpha1() -> Raw:
    """No pools, no workload types; the backends are listed. What is written so is kept as it is."""
    health = "PeriodSeconds failureThreshold port successThreshold timeoutSeconds"
    spec = record(
        "ipam",
        backendServers=listed(TEXT),
        description=TEXT,
        healthCheck=record(health, **fields(health, WHOLE)),
        ipam=one_of("pool", "dhcp"),
        listeners=_listeners("name port protocol"),
    )
    status = record(address=TEXT, conditions=WRANGLER_CONDITIONS)
    columns = [("DESCRIPTION", ".spec.description"), ("IPAM", ".spec.ipam"), ("ADDRESS", ".status.address")]
    version = _version("v1alpha1", {"spec": spec, "status": status}, columns)
    return {**version, "storage": False, "deprecated": True}


def _ip_pool() -> Raw:
    scope = listed(record(**fields("guestCluster namespace project")))
    return definition(
        kinds.IP_POOL,
        "pool pools",
        [
            ("DESCRIPTION", ".spec.description"),
            ("RANGES", ".spec.ranges"),
            ("Priority", ".spec.selector.priority"),
            LOUD_AGE,
        ],
        spec=record(
            "ranges",
            description=TEXT,
            ranges=listed(record("subnet", **fields("gateway rangeEnd rangeStart subnet"))),
            selector=record(network=TEXT, priority=SMALL, scope=scope),
        ),
        status=record(
            "available lastAllocated total",
            **fields("allocated allocatedHistory", TEXTS),
            **fields("available total", BIG),
            conditions=WRANGLER_CONDITIONS,
            lastAllocated=TEXT,
        ),
    )


def upgrade() -> Raw:
    """Not among `crds`, whose uids are drawn with the rest."""
    return definition(
        kinds.UPGRADE,
        spec=open_record(version=TEXT, image=TEXT, logEnabled=TRUTH),
        status=open_record(conditions=WRANGLER_CONDITIONS),
    )
