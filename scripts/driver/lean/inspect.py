"""Stands for the standard library's `inspect` in the one-file driver.

`dataclasses` loads the real one, and with it a compiler's worth of modules, for two questions. Without docstrings (they
are dropped) it would also have every class's signature computed, only to store it as text.
"""

from __future__ import annotations

from typing import Any


def get_annotations(thing: Any) -> dict[str, Any]:
    return dict(thing.__dict__.get("__annotations__", {}))  # noqa: RUF063  # that is what this stands for


def signature(thing: Any) -> Any:
    """`dataclasses` then does without."""
    raise ValueError(f"no signatures in the driver, so none of {thing!r}")


def getattr_static(thing: Any, name: str) -> Any:
    """For `typing`, which asks it about protocols."""
    for kind in type(thing).__mro__:
        if name in kind.__dict__:
            return kind.__dict__[name]
    return thing.__dict__[name]
