"""Machine pools, `spec.rkeConfig.machinePools`, and their machine configs: read, with all faults."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from difflib import get_close_matches
from typing import Any

from windrow.bootstrap.spec import Role
from windrow.clusters.api import names
from windrow.clusters.api.addresses import AddressPool, read_address_pools
from windrow.clusters.api.cluster import (
    DEFAULT_VM_NAMESPACE,
    DRAIN_TIMEOUT,
    LEAST_HOSTNAME,
    LONGEST_HOSTNAME,
    STARTUP_TIMEOUT,
    UNHEALTHY_TIMEOUT,
    Pool,
)
from windrow.clusters.api.fields import Fields, ProblemCollector
from windrow.clusters.api.kinds import HARVESTER_CONFIG
from windrow.clusters.api.manifest.machine_config import ResolveDriver
from windrow.clusters.api.references import qualify_credential
from windrow.clusters.api.updates.int_or_percent import IntOrPercent, read_int_or_percent
from windrow.core.formats.bounds import is_too_long
from windrow.core.formats.duration import human_duration
from windrow.harvester.names import is_label_value
from windrow.kubernetes.objects import is_label_key
from windrow.machines.port import Problem

# A watch of the guest API may be silent for 100 s until it counts as broken, and then is opened anew.
LEAST_STARTUP_TIMEOUT = timedelta(seconds=150)


# A guest cluster of Harvester has tens of machines, Kubernetes itself is made for 5,000 nodes; every machine costs a VM,
# a Machine and a place in each plan. 1,000 in one pool is beyond what is run and below what a reconcile cannot bear.
MAX_QUANTITY = 1000
MAX_ANNOTATIONS = 100_000  # characters of a pool's annotations; an API server takes 262,144 of one object

ROLE_FIELDS = (("etcdRole", Role.ETCD), ("controlPlaneRole", Role.CONTROL_PLANE), ("workerRole", Role.WORKER))


def _check_reference(
    fields: Fields, kind: str, config: str, driver: str | Problem, configs: Iterable[tuple[str, str]]
) -> None:
    """`configs` are the kinds and names of the machine configs that there are."""
    reference = fields.child("machineConfigRef")
    exists = (kind, config) in configs
    others = [other for other, name in configs if name == config]
    if isinstance(driver, Problem):
        reference.refuse("kind", f"is {kind}, and {driver.message}", driver.hint)
    elif not config:
        fields.problems.add(
            reference.at("name"), f"{fields.path} names no machine config", f"write the name of a {kind}"
        )
    elif not exists:
        fields.problems.add(
            reference.path,
            f"{fields.path} names {kind} {config!r}, which does not exist in the cluster's namespace",
            f"write kind {others[0]}, of which there is one with that name"
            if others
            else _find_near(config, [name for other, name in configs if other == kind]),
        )


MAX_NEAR = 200  # names, each of which is compared with a missing one


def _find_near(wanted: str, names: Sequence[str]) -> str:
    """What to do about a machine config that does not exist; `names` are those that do."""
    near = [] if is_too_long(wanted) else get_close_matches(wanted, names[:MAX_NEAR], 1)
    return f"did you mean {near[0]}?" if near else "create it, or correct the name"


def read_pool(
    fields: Fields,
    namespace: str,
    credential: str,
    configs: Mapping[tuple[str, str], Mapping[str, Any]],
    resolve_driver: ResolveDriver,
    default_limit: int,
) -> Pool:
    _check_autoscaling(fields)
    config = fields.child("machineConfigRef").text("name")
    kind = fields.child("machineConfigRef").text("kind") or HARVESTER_CONFIG.kind
    driver = resolve_driver(kind)
    options = configs.get((kind, config)) if isinstance(driver, str) else None
    _check_reference(fields, kind, config, driver, list(configs))
    if (system := fields.text("machineOS") or "linux") != "linux":
        fields.refuse("machineOS", f"is {system}", "only linux machines are made here")
    quantity = fields.count("quantity", 1, MAX_QUANTITY)
    return Pool(
        name=fields.text("name"),
        quantity=quantity,
        roles=frozenset(role for key, role in ROLE_FIELDS if fields.flag(key)),
        config_name=config,
        options=options,
        kind=kind,
        driver=driver if isinstance(driver, str) else "",
        credential=qualify_credential(fields.text("cloudCredentialSecretName"), namespace) or credential,
        labels=_read_labels(fields),
        taints=tuple(_taint(taint) for taint in fields.items("taints")),
        machine_labels=fields.strings("machineDeploymentLabels"),
        machine_annotations=_read_annotations(fields),
        hostname_limit=read_hostname_limit(fields, default_limit),
        drain=fields.flag("drainBeforeDelete"),
        drain_timeout=fields.duration(
            "drainBeforeDeleteTimeout", None if fields.raw.get("drainBeforeDeleteTimeout") else DRAIN_TIMEOUT
        ),
        unhealthy_timeout=fields.duration("unhealthyNodeTimeout", UNHEALTHY_TIMEOUT) or UNHEALTHY_TIMEOUT,
        startup_timeout=_read_startup_timeout(fields),
        max_unhealthy=_read_max_unhealthy(fields),
        **_read_rolling_update(fields),
        paused=fields.flag("paused"),
        address_pools=_read_addresses(fields, f"{kind} {config}", options)
        if kind == HARVESTER_CONFIG.kind
        else (),
    )


def _read_addresses(
    fields: Fields, config: str, options: Mapping[str, Any] | None
) -> tuple[AddressPool, ...]:
    """The address pools of the pool's machines; what is wrong with them is named with their HarvesterConfig."""
    found = ProblemCollector()
    namespace = str((options or {}).get("vmNamespace") or DEFAULT_VM_NAMESPACE)
    pools = read_address_pools(options or {}, namespace, found)
    for problem in found.found:
        fields.problems.add(problem.field, f"{config}: {problem.message}", problem.hint)
    return pools


def read_hostname_limit(fields: Fields, default: int) -> int:
    key = "hostnameLengthLimit"
    limit = fields.count(key, default, LONGEST_HOSTNAME)
    if limit < LEAST_HOSTNAME and fields.raw.get(key):
        fields.refuse(key, f"is {limit}", f"write {LEAST_HOSTNAME} to {LONGEST_HOSTNAME}")
    return limit if limit >= LEAST_HOSTNAME else default


def _check_autoscaling(fields: Fields) -> None:
    least, most = (fields.count(f"autoscaling{end}Size", 0, MAX_QUANTITY) for end in ("Min", "Max"))
    if most and least > most:
        fault = f"is {least}, above autoscalingMaxSize {most}"
        fields.refuse("autoscalingMinSize", fault, "write a smaller number there")


def _read_annotations(fields: Fields) -> dict[str, str]:
    """Annotations of the pool's Machines. Those by which a Machine is ordered to go, or known as ours, cannot be given to a
    whole pool for ever."""
    key = "machineDeploymentAnnotations"
    annotations = fields.strings(key)
    kept = {}
    for name, value in annotations.items():
        domain = name.rpartition("/")[0]
        if not is_label_key(name):
            hint = "write [prefix/]name of letters, digits and inner - _ ."
            fields.refuse(key, f"has the key {name!r}, which no object may have", hint)
        elif name in names.MACHINE_REQUESTS or domain == names.OWN_DOMAIN:
            fault = f"has {name}, which is not given to Machines: it is for one of them at a time"
            fields.warn(key, fault, "annotate that Machine")
        else:
            kept[name] = value
    if sum(len(name) + len(value) for name, value in kept.items()) > MAX_ANNOTATIONS:
        fields.refuse(key, f"has more than {MAX_ANNOTATIONS} characters", "write fewer")
        return {}
    return kept


def _read_startup_timeout(fields: Fields) -> timedelta | None:
    key = "nodeStartupTimeout"
    found = fields.duration(key, None if fields.raw.get(key) else STARTUP_TIMEOUT)
    if found is not None and found < LEAST_STARTUP_TIMEOUT:
        fields.warn(
            key,
            f"is {human_duration(found)}: a Node that joins while the connection to the guest API is broken without notice is "
            "seen up to 100 s later, and its machine may have been replaced by then",
            f"write {human_duration(LEAST_STARTUP_TIMEOUT)} or more",
        )
    return found


def _read_labels(fields: Fields) -> dict[str, str]:
    """The labels of the pool's Nodes. One that no API server takes is a problem, and left out: it would hold back all
    others of the Node, and kubelet would not start with it."""
    labels = fields.strings("labels")
    for key, value in labels.items():
        if not is_label_key(key):
            hint = (
                "write [prefix/]name of letters, digits and inner - _ . (name and value up to 63 characters)"
            )
            fields.refuse("labels", f"has the key {key!r}, which no Node may have", hint)
        elif not is_label_value(value):
            hint = "write up to 63 letters, digits and inner - _ ."
            fields.refuse("labels", f"has {key}={value!r}, a value that no Node may have", hint)
    return {key: value for key, value in labels.items() if is_label_key(key) and is_label_value(value)}


_TAINT_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


def _taint(fields: Fields) -> str:
    key, value, effect = fields.text("key"), fields.text("value"), fields.text("effect") or "NoSchedule"
    if not key:
        fields.problems.add(fields.path, f"{fields.path} has no key", "write the taint's key")
    elif not is_label_key(key):
        fields.refuse(
            "key",
            f"is {key!r}, which no taint may have",
            "write [prefix/]name of letters, digits and inner - _ .",
        )
    if not is_label_value(value):
        fields.refuse(
            "value",
            f"is {value!r}, which no taint may have",
            "write up to 63 letters, digits and inner - _ .",
        )
    if effect not in _TAINT_EFFECTS:
        fields.refuse(
            "effect",
            f"is {effect!r}, which is no effect",
            f"write {', '.join(_TAINT_EFFECTS[:-1])} or {_TAINT_EFFECTS[-1]}",
        )
    return f"{key}={value}:{effect}" if value else f"{key}:{effect}"


_RANGE = re.compile(r"\[(\d+)-(\d+)\]")


def _read_max_unhealthy(fields: Fields) -> IntOrPercent:
    if text := fields.short_text("unhealthyRange"):
        found = _RANGE.fullmatch(text)
        if found and int(found[1]) <= int(found[2]):
            return IntOrPercent(None, int(found[2]), int(found[1]))
        fields.refuse("unhealthyRange", f"is {text!r}", "write it as [1-3], the smaller number first")
    return read_int_or_percent(fields, "maxUnhealthy") or IntOrPercent()


def _read_rolling_update(fields: Fields) -> dict[str, IntOrPercent]:
    """`max_surge` and `max_unavailable`, as far as they are set. Both 0 are refused, as Cluster API does: no machine could go."""
    if fields.raw.get("rollingUpdate") is None:
        return {}
    given = fields.child("rollingUpdate")
    read = {
        name: found
        for name, key in (("max_surge", "maxSurge"), ("max_unavailable", "maxUnavailable"))
        if (found := read_int_or_percent(given, key)) is not None
    }
    surge, unavailable = read.get("max_surge"), read.get("max_unavailable", IntOrPercent(None, 0))
    if (
        surge is not None
        and not surge.percent
        and not surge.count
        and not unavailable.percent
        and not unavailable.count
    ):
        fault = "has maxSurge 0 and maxUnavailable 0, so that no machine could ever be replaced"
        fields.refuse("rollingUpdate", fault, "set one of them to 1 or more")
        return {}
    return read
