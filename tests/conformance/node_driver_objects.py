"""What a driver makes, in a form that can be compared field by field, and the table that documents the differences."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.conformance.object_tables import (
    ABSENT,
    Difference,
    Row,
    field_differences,
    flat,
    list_differences,
)
from tests.conformance.object_tables import compare as compare_all

from windrow.core.formats import yaml

DOCUMENT = Path(__file__).parents[2] / "docs/reference/differences-node-driver.md"
HEADING = "## Objects, field by field"
NAMED_LISTS = ("disks", "volumes", "interfaces", "networks")
CLAIMS = "harvesterhci.io/volumeClaimTemplates"


@dataclass(frozen=True, slots=True)
class CreatedObjects:
    """The objects of one machine: the VM as the driver sent it, its Secret as Harvester stored it."""

    name: str
    vm: Mapping[str, Any]
    secret: Mapping[str, Any] | None

    def fields(self) -> dict[str, str]:
        """Every field by its path, as text. What differs from machine to machine is replaced by what it stands for."""
        parts = {"VM": self._shown_vm()}
        if self.secret is not None:
            parts["Secret"] = _shown_secret(self.secret)
        for kind, text in self._documents().items():
            read = _read_document(text)
            parts[kind] = {key: value for key, value in read.items() if not isinstance(value, list)}
        found = {path: text for part, value in parts.items() for path, text in flat(part, value, NAMED_LISTS)}
        return {self._general(path): self._general(text) for path, text in found.items()}

    def lists(self) -> dict[str, list[str]]:
        """The lists of the documents, each element as text: what counts there is what is in them, and its order."""
        return {
            f"{kind}.{key}": [self._general(_text(item)) for item in value]
            for kind, text in self._documents().items()
            for key, value in _read_document(text).items()
            if isinstance(value, list)
        }

    # -- the parts -------------------------------------------------------------------------------------------------

    def _shown_vm(self) -> Any:
        vm = json.loads(json.dumps(self.vm))
        vm["metadata"]["annotations"][CLAIMS] = json.loads(vm["metadata"]["annotations"][CLAIMS])
        source = _cloud_init(vm)
        for key in ("userData", "networkData"):
            if key in source:
                source[key] = "<document>"
        return vm

    def _documents(self) -> dict[str, str]:
        source = _cloud_init(self.vm)
        stored = {
            key: base64.b64decode(text).decode() for key, text in (self.secret or {}).get("data", {}).items()
        }
        found = {"user data": source.get("userData"), "network data": source.get("networkData")}
        for kind, reference, key in (
            ("user data", "secretRef", "userdata"),
            ("network data", "networkDataSecretRef", "networkdata"),
        ):
            if reference in source:
                found[kind] = stored[key]
        return {kind: text for kind, text in found.items() if text is not None}

    def _general(self, text: str) -> str:
        text = re.sub(rf"({re.escape(self.name)}-disk-\d+)-[a-z0-9]{{5}}\b", r"\1-<random>", text)
        text = text.replace(self.name, "<machine>")
        text = re.sub(r"\bSHA256:[A-Za-z0-9+/]{43}\b", "<fingerprint>", text)
        text = re.sub(r"ssh-rsa [A-Za-z0-9+/=]+", "<SSH key>", text)
        return re.sub(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b", "<uid>", text)


def _shown_secret(secret: Mapping[str, Any]) -> Any:
    """A Secret without what the server and the documents put in it."""
    kept = ("name", "labels", "annotations", "ownerReferences", "finalizers")
    metadata = {key: value for key, value in secret["metadata"].items() if key in kept}
    data = dict.fromkeys(secret.get("data", {}), "<document>")
    return {"metadata": metadata, "type": secret["type"], "data": data}


def _cloud_init(vm: Mapping[str, Any]) -> Any:
    volumes = vm["spec"]["template"]["spec"]["volumes"]
    return next(volume["cloudInitNoCloud"] for volume in volumes if "cloudInitNoCloud" in volume)


def _read_document(text: str) -> Any:
    """A cloud-init document: the lines above it, what it says, and its comments (which YAML forgets)."""
    lines = text.splitlines()
    head = [line for line in lines if line.startswith(("## template", "#cloud-config"))]
    comments = [line[:40] for line in lines if line.startswith("#") and line not in head]
    return {"(head)": head, "(comments)": comments, **(yaml.load(text) or {})}


def _text(item: Any) -> str:
    return item if isinstance(item, str) else json.dumps(item)


# -- differences ---------------------------------------------------------------------------------------------------


def compare(go: Mapping[str, CreatedObjects], ours: Mapping[str, CreatedObjects]) -> list[Row]:
    """Every field that differs, with the inputs in which it does."""
    return compare_all(go, ours, _differences)


def _differences(go: CreatedObjects, ours: CreatedObjects) -> Iterator[Difference]:
    if (go.secret is None) != (ours.secret is None):
        yield "Secret", *(ABSENT if made.secret is None else "present" for made in (go, ours))
    alone = go.secret is None or ours.secret is None
    for difference in field_differences(go.fields(), ours.fields()):
        if not (alone and difference[0].startswith("Secret.")):
            yield difference
    for field in {*go.lists(), *ours.lists()}:
        yield from list_differences(field, go.lists().get(field, []), ours.lists().get(field, []))
