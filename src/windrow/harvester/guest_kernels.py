"""What a guest says of its kernel, as a label of its Node, and what helps where the kernel lacks a module.

The machine looks for it at each boot (`bootstrap.install.kernel_probe`). Without the label, or with another value, nothing is
known.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

MacvlanState = Literal["available", "missing", ""]

MACVLAN = "windrow.io/macvlan"
AVAILABLE: MacvlanState = "available"
MISSING: MacvlanState = "missing"

MACVLAN_CURE = (
    "install the kernel's other modules in the image (SLES and openSUSE: kernel-default in place of kernel-default-base; Ubuntu: "
    "linux-modules-extra of the kernel's version; RHEL and its rebuilds: kernel-modules) and replace the machine, or install "
    "them on it and restart it; services with an address of an IPPool do without"
)


def read_macvlan(labels: Mapping[str, str]) -> MacvlanState:
    """Whether the kernel has `macvlan`; "" where that is not known."""
    match labels.get(MACVLAN):
        case "available":
            return AVAILABLE
        case "missing":
            return MISSING
        case _:
            return ""
