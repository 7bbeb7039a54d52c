"""Adapter module of jinja2: HTML of templates. Everything that is put into a page is escaped, without exception."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from functools import cache
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from windrow.core.clock import format_time
from windrow.core.formats.duration import human_duration
from windrow.dashboard.assets import asset_path

# The library is imported for the first page, so that `windrow serve` starts as fast as without pages.
if TYPE_CHECKING:
    from jinja2 import Environment


@cache
def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    made = Environment(
        loader=PackageLoader("windrow.dashboard"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.globals.update(asset=asset_path, path=path_of, with_query=with_query)
    made.filters.update(age=format_age, instant=format_time)
    return made


def render(template: str, values: Mapping[str, Any]) -> str:
    """The text of a template with `values`."""
    return _environment().get_template(template).render(values)


def path_of(*parts: str) -> str:
    """A path of this site, each part quoted, so that a name of an object leads nowhere else."""
    return "/" + "/".join(quote(part, safe="") for part in parts)


def with_query(path: str, /, **query: object) -> str:
    """`path` with those of the parameters that are not empty, whatever they are called."""
    given = {name: str(value) for name, value in query.items() if value not in ("", None)}
    return f"{path}?{urlencode(given, errors='replace')}" if given else path


def format_age(since: datetime | None, now: datetime) -> str:
    """For how long, as kubectl prints it; "" where that is not known."""
    return human_duration(now - since) if since is not None else ""
