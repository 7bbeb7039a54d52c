"""Checks of a machine's affinity: what the API server and KubeVirt refuse of it when the VirtualMachine is created.

Its keys are in Kubernetes' spelling already (`nodedriver.affinity.read_affinity`). What is missing is the zero value of
its type, as in Go: a weight of 0, a topologyKey of "".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

from windrow.harvester.names import is_label_value
from windrow.harvester.problems import Problem
from windrow.kubernetes.objects import is_dns_label, is_dns_subdomain, is_label_key
from windrow.nodedriver.affinity import PREFERRED, REQUIRED

FIELD = "vmAffinity"
_KINDS = {dict: "an object", list: "a list", str: "a text", int: "a whole number"}
_WITH_VALUES = ("In", "NotIn")
_WITHOUT_VALUES = ("Exists", "DoesNotExist")
_COMPARISONS = ("Gt", "Lt")

T = TypeVar("T")


def find_affinity_problems(affinity: Mapping[str, Any]) -> list[Problem]:
    """Everything that prevents the VirtualMachine, each with the path to it."""
    reader = _Reader()
    reader.affinity(affinity)
    return reader.problems


class _Reader:
    """Reads the affinity from its root, and keeps what is wrong."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []

    def affinity(self, raw: Mapping[str, Any]) -> None:
        node = self._get(raw, "nodeAffinity", dict, "")
        if (required := self._get(node, REQUIRED, dict, "nodeAffinity.")) is not None:
            self._required_node(required, f"nodeAffinity.{REQUIRED}.")
        for path, term in self._objects(node, PREFERRED, "nodeAffinity."):
            self._weight(term, path)
            self._node_term(self._get(term, "preference", dict, path), f"{path}preference.")
        for kind in ("podAffinity", "podAntiAffinity"):
            pods = self._get(raw, kind, dict, "")
            for path, term in self._objects(pods, REQUIRED, f"{kind}."):
                self._pod_term(term, path)
            for path, term in self._objects(pods, PREFERRED, f"{kind}."):
                self._weight(term, path)
                inner = self._get(term, "podAffinityTerm", dict, path)
                self._pod_term(inner or {}, f"{path}podAffinityTerm.")

    def _required_node(self, required: Mapping[str, Any], at: str) -> None:
        """Harvester's own terms for the machine's networks replace terms without expressions."""
        if not required.get("nodeSelectorTerms"):
            self._warn(f"{at}nodeSelectorTerms", "is empty, and has no effect", "give it a term")
        for path, term in self._objects(required, "nodeSelectorTerms", at):
            if self._get(term, "matchExpressions", list, path):
                self._node_term(term, path)
                continue
            self._warn(
                path[:-1], "has no matchExpressions, and no effect on Harvester", "select nodes by labels"
            )
            for inner, one in self._objects(term, "matchFields", path):
                self._read(one, inner)

    def _node_term(self, term: Mapping[str, Any] | None, at: str) -> None:
        for path, one in self._objects(term, "matchExpressions", at):
            self._requirement(one, path, (*_WITH_VALUES, *_WITHOUT_VALUES, *_COMPARISONS))
        for path, one in self._objects(term, "matchFields", at):
            values = self._requirement(one, path, _WITH_VALUES, is_field=True)
            if values is not None and not (len(values) == 1 and is_dns_subdomain(values[0])):
                self._refuse(f"{path}values", f"is {values!r}", "give it the name of one node")

    def _pod_term(self, term: Mapping[str, Any], at: str) -> None:
        for key in ("labelSelector", "namespaceSelector"):
            self._selector(self._get(term, key, dict, at), f"{at}{key}.")
        for namespace in self._texts(term, "namespaces", at) or ():
            if not is_dns_label(namespace):
                self._refuse(f"{at}namespaces", f"has {namespace!r}", "name namespaces of Harvester")
        for key in ("matchLabelKeys", "mismatchLabelKeys"):
            self._texts(term, key, at)
        topology = self._get(term, "topologyKey", str, at, "")
        if topology is not None and not is_label_key(topology):
            found = f"is {topology!r}" if topology else "is missing"
            self._refuse(
                f"{at}topologyKey", found, "name a label of the nodes, such as kubernetes.io/hostname"
            )

    def _selector(self, selector: Mapping[str, Any] | None, at: str) -> None:
        for key, value in (self._get(selector, "matchLabels", dict, at) or {}).items():
            if not (is_label_key(str(key)) and isinstance(value, str) and is_label_value(value)):
                self._refuse(
                    f"{at}matchLabels", f"has {key!r}: {value!r}", "give a label and its value as text"
                )
        for path, one in self._objects(selector, "matchExpressions", at):
            for value in self._requirement(one, path, (*_WITH_VALUES, *_WITHOUT_VALUES)) or ():
                if not is_label_value(value):
                    self._refuse(f"{path}values", f"has {value!r}", "give values that a label can have")

    def _weight(self, term: Mapping[str, Any], at: str) -> None:
        if (weight := self._get(term, "weight", int, at, 0)) is not None and not 1 <= weight <= 100:
            self._refuse(f"{at}weight", f"is {weight}", "give it a weight from 1 to 100")

    def _requirement(
        self, one: Mapping[str, Any], at: str, operators: tuple[str, ...], *, is_field: bool = False
    ) -> list[str] | None:
        """The values of a requirement; None where they cannot be read."""
        key, operator, values = self._read(one, at)
        if is_field and key != "metadata.name":
            self._refuse(f"{at}key", f"is {key!r}", "use metadata.name, the only field of a node it can be")
        elif not is_label_key(key):
            self._refuse(f"{at}key", f"is {key!r}" if key else "is missing", "name a label")
        if operator not in operators:
            found = f"is {operator!r}" if operator else "is missing"
            self._refuse(f"{at}operator", found, f"use one of {', '.join(operators)}")
        elif values is not None:
            if operator in _WITH_VALUES and not values:
                self._refuse(f"{at}values", f"is empty with the operator {operator}", "give it a value")
            elif operator in _WITHOUT_VALUES and values:
                self._refuse(f"{at}values", f"is given with the operator {operator}", "leave values out")
            elif operator in _COMPARISONS and len(values) != 1:
                self._refuse(
                    f"{at}values", f"has {len(values)} entries with {operator}", "give it one number"
                )
        return values

    def _read(self, one: Mapping[str, Any], at: str) -> tuple[str, str, list[str] | None]:
        key, operator = (self._get(one, name, str, at) or "" for name in ("key", "operator"))
        return key, operator, self._texts(one, "values", at)

    def _get(
        self, raw: Mapping[str, Any] | None, key: str, kind: type[T], at: str, default: T | None = None
    ) -> T | None:
        """The value of that type, the default where it is missing; None where it is of another type, which is a problem."""
        value = None if raw is None else raw.get(key)
        if value is None:
            return default
        if not isinstance(value, kind) or isinstance(value, bool):
            self._refuse(f"{at}{key}", f"is not {_KINDS[kind]}", f"write it as {_KINDS[kind]}")
            return None
        return value

    def _entries(
        self, raw: Mapping[str, Any] | None, key: str, kind: type, at: str
    ) -> Iterator[tuple[str, Any]]:
        for index, entry in enumerate(self._get(raw, key, list, at) or ()):
            value = kind() if entry is None else entry
            if isinstance(value, kind):
                yield f"{at}{key}[{index}]", value
            else:
                self._refuse(f"{at}{key}[{index}]", f"is not {_KINDS[kind]}", f"write it as {_KINDS[kind]}")

    def _objects(
        self, raw: Mapping[str, Any] | None, key: str, at: str
    ) -> Iterator[tuple[str, Mapping[str, Any]]]:
        return ((f"{path}.", value) for path, value in self._entries(raw, key, dict, at))

    def _texts(self, raw: Mapping[str, Any], key: str, at: str) -> list[str] | None:
        """The list of texts, empty where there is none; None where it has something else, which is a problem."""
        told = len(self.problems)
        texts = [value for _, value in self._entries(raw, key, str, at)]
        return texts if len(self.problems) == told else None

    def _refuse(self, at: str, found: str, hint: str) -> None:
        self.problems.append(Problem(f"{at} of {FIELD} {found}, which Harvester refuses", hint, FIELD))

    def _warn(self, at: str, found: str, hint: str) -> None:
        self.problems.append(Problem(f"{at} of {FIELD} {found}", hint, FIELD, "warning"))
