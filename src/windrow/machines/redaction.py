"""Keeping secrets out of what is logged or told."""

from __future__ import annotations

import re
from collections.abc import Sequence

HIDDEN_FROM = 6  # shorter secrets would hide half of every line
SECRET_FROM, CERTAINLY = 16, 24
_NAMED = re.compile(
    r"""^[\s-]*(?:token|password|client-key-data)\s*:\s*["']?([^\s"']+)""", re.IGNORECASE | re.MULTILINE
)


class Redaction:
    """Takes secrets out of what is logged or told: the values handed in, and what looks like a secret within them.

    A kubeconfig or a document also holds names and addresses, which errors speak of; those, and `spared`, stay.
    """

    def __init__(self, secrets: Sequence[str], spared: Sequence[str] = ()) -> None:
        words = {secret.strip() for secret in secrets}
        words |= {
            word for secret in secrets for each in secret.split() if _is_secret(word := each.strip("\"',;"))
        }
        words |= {match for secret in secrets for match in _NAMED.findall(secret)}
        found = {word for word in words if len(word) >= HIDDEN_FROM and word not in spared}
        self._words = sorted(found, key=len, reverse=True)

    def __call__(self, text: str) -> str:
        for word in self._words:
            text = text.replace(word, "…")
        return text


def _is_secret(word: str) -> bool:
    """Keys and tokens are long, have digits or are longer still, and are no address, path or key of a document."""
    if len(word) < SECRET_FROM or word.endswith(":") or word.startswith("/") or "://" in word:
        return False
    return len(word) >= CERTAINLY or any(letter.isdigit() for letter in word)
