"""Objects in the formats of `kubectl get -o`: json, yaml, name and jsonpath=TEMPLATE."""

from __future__ import annotations

from collections.abc import Sequence

from windrow.cli import exit_codes
from windrow.cli.errors import CliError
from windrow.cli.output.data import list_of, render_data
from windrow.kubernetes.objects import Raw, name_of

JSONPATH = "jsonpath="


def is_table(output: str | None) -> bool:
    """Whether lines for people are wanted."""
    return output in (None, "wide", "table")


def render_objects(raws: Sequence[Raw], output: str, *, single: bool = False) -> str:
    """The objects as text, a List of several; `single`: the command named the one object. Raises CliError for a template
    that is none."""
    if output == "name":
        return "\n".join(map(_typed_name, raws))
    value = raws[0] if single else list_of(raws)
    if output.startswith(JSONPATH):
        return _render_template(output.removeprefix(JSONPATH), value)
    return render_data(value, output)


def _typed_name(raw: Raw) -> str:
    """`machine.windrow.io/orchard-servers-a`."""
    group, slash, _ = str(raw.get("apiVersion", "")).rpartition("/")
    kind = str(raw.get("kind", "")).lower()
    return f"{kind}{f'.{group}' if slash else ''}/{name_of(raw)}"


def _render_template(template: str, value: object) -> str:
    from windrow.core.formats.jsonpath import NotJsonPath, parse_jsonpath, render_jsonpath

    try:
        return render_jsonpath(parse_jsonpath(template), value)
    except NotJsonPath as error:
        raise CliError(
            f"The template {template[:80]!r} cannot be read: {error}.",
            "Write it as for kubectl: -o jsonpath='{.items[*].metadata.name}'",
            exit_codes.USAGE,
        ) from error
