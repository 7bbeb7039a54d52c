"""What the built-in node driver says of its options, as the cluster manager takes it: the two do not know each other."""

from __future__ import annotations

from typing import Any

from windrow.clusters.change.fields import OptionRules
from windrow.nodedriver.options import BY_FIELD, OPTIONS, read_value


def _read(field: str, value: Any) -> Any:
    return read_value(BY_FIELD[field], value)


OPTION_RULES = OptionRules({option.field: option.change for option in OPTIONS}, _read)
