"""Names that DNS takes, as Kubernetes asks for them."""

from __future__ import annotations

import re

MAX_LABEL_LENGTH = 63

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")


def is_dns_label(text: str, max_length: int | None = MAX_LABEL_LENGTH) -> bool:
    """Whether `text` is a DNS-1123 label: small letters, digits and inner dashes. With `longest=None` its length is
    not looked at."""
    return _LABEL.fullmatch(text) is not None and (max_length is None or len(text) <= max_length)
