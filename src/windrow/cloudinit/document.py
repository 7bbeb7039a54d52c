"""One cloud-config document: read from user data, merged, written back.

Only `#cloud-config` can be merged. Scripts, MIME archives and the other forms that cloud-init takes are refused by
name, because the bootstrap has to come along in the same document.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from windrow.core.errors import UserError
from windrow.core.formats.yaml import NotYaml, dump, load_first_as_written
from windrow.core.text import collapse_whitespace

HEADER = "#cloud-config"
JINJA = "## template: jinja"

# How cloud-init recognises the other forms: by the first characters of the text.
_OTHER_FORMS = {
    "#!": "a script",
    "#include": "an include list",
    "#cloud-config-archive": "a cloud-config archive",
    "#cloud-boothook": "a boothook",
    "#part-handler": "a part handler",
    "#upstart-job": "an upstart job",
    "content-type:": "a MIME archive",
    "mime-version:": "a MIME archive",
    "from ": "a MIME archive",
}


class BadUserData(UserError):
    """The user data cannot be used."""


@dataclass(frozen=True, slots=True)
class Document:
    """A cloud-config as data. `jinja`: cloud-init renders it as a template first. `has_more`: other YAML documents
    followed it, which have no effect."""

    data: Mapping[str, Any] = field(default_factory=dict)
    jinja: bool = False
    has_more: bool = field(default=False, compare=False)


def parse(text: str) -> Document:
    """The document in `text`, with or without its `#cloud-config` line; empty text is an empty document.

    Of several YAML documents the first counts. Numbers and quoted texts are written back by `emit` as they stand there;
    `22:22` is a text. Raises BadUserData for anything that is not a YAML map.
    """
    jinja = text.startswith(f"{JINJA}\n")
    start = text.removeprefix(f"{JINJA}\n").lstrip().lower()
    for mark, form in _OTHER_FORMS.items():
        if start.startswith(mark):
            raise BadUserData(
                f"the user data is {form}, which cannot be merged with the machine's own set-up",
                "write it as #cloud-config; a script goes into a runcmd entry",
            )
    try:
        data, has_more = load_first_as_written(text)
    except NotYaml as error:
        raise BadUserData(
            f"the user data is not YAML: {collapse_whitespace(error)}",
            "correct the indentation or quoting at that place",
        ) from error
    if data is None:
        return Document(jinja=jinja, has_more=has_more)
    if isinstance(data, str):
        raise BadUserData(
            "the user data is neither base64 nor cloud-config",
            "start it with #cloud-config and write keys such as packages: or runcmd:, or give base64 of that",
        )
    if not isinstance(data, dict):
        raise BadUserData(
            f"the user data is {_SHAPES.get(type(data), 'a single value')}, not a map of cloud-config keys",
            "start it with #cloud-config and write keys such as packages: or runcmd: (or base64 of that)",
        )
    return Document(data, jinja, has_more)


def emit(document: Document) -> str:
    """The text that cloud-init reads: headers, then YAML with sorted keys. `parse` reads it back."""
    head = f"{JINJA}\n{HEADER}\n" if document.jinja else f"{HEADER}\n"
    data = _with_text_permissions(document.data)
    return head + dump(data, sort=True) if data else head


_SHAPES: dict[type, str] = {list: "a list", int: "a number", float: "a number"}


def _with_text_permissions(data: Mapping[str, Any]) -> dict[str, Any]:
    """`permissions: 0644` is the number 420 in YAML 1.1. cloud-init takes it as the same mode, but its schema and
    every reader want the text, so that is what we write."""
    files = data.get("write_files")
    if not isinstance(files, list):
        return dict(data)
    return {**data, "write_files": [_with_text_mode(file) for file in files]}


def _with_text_mode(file: Any) -> Any:
    mode = file.get("permissions") if isinstance(file, Mapping) else None
    if not isinstance(mode, int) or isinstance(mode, bool):
        return file
    return {**file, "permissions": f"0{mode:o}"}
