"""The annotations that users write, by the kind of the object, and warnings about others: misspelt, on the wrong kind, or
written as labels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from windrow.clusters.api import names
from windrow.clusters.api.fields import ProblemCollector
from windrow.core.formats.bounds import abbreviate, is_too_long
from windrow.kubernetes.objects import annotations_of, labels_of


@dataclass(frozen=True, slots=True)
class Annotation:
    """What an annotation that a user writes does, and the test that shows it, below tests/."""

    about: str
    test: str


# Every annotation that a user writes, by the kind of the object. Those of a Cluster are all that there are of Windrow's own: any
# other is warned of.
ANNOTATIONS: Mapping[str, Mapping[str, Annotation]] = {
    "Cluster": {
        names.REMEDIATION: Annotation(
            "`off` or `false`: no machine is replaced by itself; `on`, `true` or no annotation: they are",
            "unit/clusters/test_cluster.py::test_one_annotation_turns_remediation_off",
        ),
        names.RENEW_CERTIFICATES: Annotation(
            "`off` or `false`: services are not restarted by themselves 60 days before a certificate ends",
            "unit/clusters/test_certificates.py::test_renewal_by_itself_is_turned_off_by_an_annotation",
        ),
        names.STRATEGY: Annotation(
            "`replace`: machines are replaced where they could be changed in place, but for another version",
            "unit/clusters/test_rollout.py::test_a_cluster_that_replaces_its_machines_restarts_none",
        ),
        names.CANARY: Annotation(
            "a number: once so many machines are changed, the others wait for `windrow resume`",
            "stories/test_rollouts.py::test_a_canary_is_replaced_and_the_others_once_the_cluster_is_resumed",
        ),
        names.ENDPOINT_MODE: Annotation(
            "how the control plane is reached: `firstServer`, `address` or `loadBalancer`",
            "stories/test_endpoints.py::test_behind_an_address_of_the_users_the_first_server_may_die",
        ),
        names.ENDPOINT_ADDRESS: Annotation(
            "mode `address`: the virtual IP address or DNS name",
            "stories/test_endpoints.py::test_behind_an_address_of_the_users_the_first_server_may_die",
        ),
        names.ENDPOINT_JOIN_ADDRESS: Annotation(
            "mode `address`: the one by which machines join, where servers with etcd are others than those with an API",
            "stories/test_endpoints.py::test_divided_servers_behind_addresses_of_the_users",
        ),
        names.ENDPOINT_IP_POOL: Annotation(
            "mode `loadBalancer`: the IPPool of Harvester that its address comes from",
            "stories/test_endpoints.py::test_behind_a_load_balancer_the_first_server_may_die_and_a_deleted_cluster_leaves_none",
        ),
    },
    "Machine": {
        names.DELETE_FIRST: Annotation(
            "this machine is the first to be deleted when its pool is scaled down",
            "unit/clusters/test_pools.py::test_a_marked_surplus_machine_goes_before_an_unhealthy_one",
        ),
        names.REPLACE_NOW: Annotation(
            "this machine is replaced now, as far as disruptions are allowed",
            "unit/clusters/test_remediation.py::test_an_annotation_asks_for_a_replacement_of_a_ready_machine",
        ),
    },
    "Secret": {
        names.ALLOWED_NAMESPACES: Annotation(
            "the namespaces whose Clusters may use it, with commas between, beside its own; `*` for all",
            "stories/test_consent.py::test_a_refused_cluster_is_built_once_the_secret_allows_its_namespace",
        ),
        names.AUTHORIZED_CLUSTERS: Annotation(
            "the Clusters beside it that may use it in `machineSelectorFiles`, with commas between; also on a ConfigMap",
            "stories/test_cluster_life.py::test_what_a_manifest_gives_its_machines_is_on_them",
        ),
    },
}

# The prefixes of which every annotation is told that its kind does not have: of a HarvesterConfig none reaches its VMs.
_PREFIXES: Mapping[str, tuple[str, ...]] = {
    "Cluster": (f"{names.OWN_DOMAIN}/",),
    "HarvesterConfig": (f"{names.OWN_DOMAIN}/", "harvesterhci.io/", "cloudprovider.harvesterhci.io/"),
}
MAX_UNKNOWN = 20  # each is compared with all that are known


def check_annotations(kind: str, raw: Mapping[str, Any], problems: ProblemCollector, label: str = "") -> None:
    """Add a warning for each annotation of Windrow's or Harvester's that no object of the kind has, and for each label that is an
    annotation or is of no kind, with what was probably meant. A warning, because a later release may know it. `label` begins
    the messages."""
    own, prefixes = ANNOTATIONS.get(kind, {}), _PREFIXES.get(kind, ())
    given = map(str, annotations_of(raw))
    unknown = [key for key in given if key.lower().startswith(prefixes) and key not in own]
    _warn(kind, "metadata.annotations", unknown, problems, label)
    labels = [key for key in map(str, labels_of(raw)) if key in own or key.lower().startswith(prefixes)]
    _warn(kind, "metadata.labels", labels, problems, label)


def check_pool_metadata(place: str, pool: Mapping[str, Any], problems: ProblemCollector) -> None:
    """Add a warning for each of a Cluster's own annotations in a machine pool, whose labels and annotations are those of Nodes and
    of Machines."""
    for where in ("labels", "machineDeploymentLabels", "machineDeploymentAnnotations"):
        given = pool.get(where)
        for key in sorted(ANNOTATIONS["Cluster"].keys() & (given if isinstance(given, Mapping) else {})):
            field = f"{place}.{where}[{key}]"
            fault = f"{field} has no effect: it is an annotation of the Cluster"
            problems.add(field, fault, "write it in metadata.annotations of the Cluster", "warning")


def _warn(kind: str, where: str, keys: list[str], problems: ProblemCollector, label: str) -> None:
    is_label = where == "metadata.labels"
    for key in keys[:MAX_UNKNOWN]:
        field = f"{where}[{abbreviate(key) if is_too_long(key) else key}]"
        if is_label and key in ANNOTATIONS.get(kind, {}):
            fault, hint = "it is an annotation", "write it in metadata.annotations"
        else:
            fault = f"no {kind} has that {'label' if is_label else 'annotation'}"
            hint = _find_hint(kind, key, is_label=is_label)
        problems.add(field, f"{label}{field} has no effect: {fault}", hint, "warning")
    if (more := len(keys) - MAX_UNKNOWN) > 0:
        domains = " and ".join(prefix.rstrip("/") for prefix in _PREFIXES[kind])
        fault = f"{label}{where} has {more} more of {domains} without effect"
        problems.add(where, fault, "remove them", "warning")


def _find_hint(kind: str, key: str, *, is_label: bool) -> str:
    """What to write in place of an annotation, or label, that the kind does not have."""
    form, noun = (", as an annotation", "annotation ") if is_label else ("", "")
    if key == names.ALLOWED_NAMESPACES:
        return f"write it on the Secret that is shared{form}"
    places = {name: other for other, found in ANNOTATIONS.items() for name in found}
    if key in places:
        return f"write it on the {places[key]}{form}"
    name = key.partition("/")[2].lower()
    own = sorted(ANNOTATIONS.get(kind, places))
    known = {one.rpartition("/")[2]: one for one in own}
    near = [] if is_too_long(name) else get_close_matches(name, known, 1)
    if near and kind in ANNOTATIONS:
        return f"did you mean {noun}{known[near[0]]}?"
    if near:
        return f"did you mean {noun}{known[near[0]]}, on the {places[known[near[0]]]}?"
    return f"remove it; there are {noun}{', '.join(own)}" if kind in ANNOTATIONS else "remove it"
