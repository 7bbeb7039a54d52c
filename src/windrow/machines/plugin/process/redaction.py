"""Removes secrets from logs and error messages."""

from __future__ import annotations

import re
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Iterator, Sequence

MIN_SECRET_LENGTH = 6  # shorter ones would hide half of every line
TOKEN_LENGTH, LONG_TOKEN_LENGTH = 16, 24
# The longest beginning of a secret that may remain at a cut; fewer letters could end any text.
_MIN_OVERLAP = 4

# `token: x`, `K3S_TOKEN=x`, `"secretKey": "x"`, …: recognised by the end of the key.
_KEY = r"""(?:token|passw(?:or)?d|passphrase|secret|key-data|(?:private|secret|access|api)[-_]?key)\\?["']?"""
_NAMED = re.compile(
    rf"""{_KEY}\s*[:=]\s*(?:\\?"([^"\n\\]+)|\\?'([^'\n\\]+)|([^\s"',;\\}}]+))""", re.IGNORECASE
)
# An unquoted value extends to the end of its line.
_NAMED_LINE = re.compile(rf"{_KEY}[ \t]*[:=][ \t]*([^\s\"'].*)$", re.IGNORECASE | re.MULTILINE)
# `root:hunter2!` is a password only in the input of chpasswd.
_CHPASSWD = re.compile(r"^([ \t]*)chpasswd:.*(?:\n(?:\1[ \t-].*|[ \t]*$))*|^.*chpasswd.*", re.MULTILINE)
_OF_USER = re.compile(r"""[A-Za-z_][\w.-]*:([^\s"']+)""")


class Redactor:
    """Removes secrets from text: the values given, and what looks like a secret within them, plain or in base64, alone
    or within something longer.

    A kubeconfig or a document also holds names and addresses that errors mention; those, and `allowed`, stay.
    """

    def __init__(self, secrets: Sequence[str], allowed: Sequence[str] = ()) -> None:
        words = {secret.strip() for secret in secrets}
        for secret in secrets:
            words |= {word for each in secret.split() if _looks_secret(word := each.strip("\"',;"))}
            words |= set(_named_values(secret))
        found = {word for word in words if len(word) >= MIN_SECRET_LENGTH and word not in allowed}
        forms = found | {form for word in found for form in base64_forms(word)}
        self._words = sorted(forms, key=len, reverse=True)

    def __call__(self, text: str) -> str:
        for word in self._words:
            text = text.replace(word, "…")
        return text

    def redact_truncated(self, text: str) -> str:
        """The same for a truncated text: it may end with the beginning of a secret."""
        cut = False
        while tail := self._tail(text):
            text, cut = text[:-tail], True
        return self(text) + ("…" if cut else "")

    def _tail(self, text: str) -> int:
        """The number of characters at the end that are the beginning of a secret."""
        return max((_overlap(text, word) for word in self._words), default=0)


def base64_forms(secret: str) -> Iterator[str]:
    """The secret's possible base64 forms: alone, and the certain part of it at each offset within something longer. It
    has MIN_SECRET_LENGTH letters or more, and so has each form."""
    data = secret.encode()
    for encode in (b64encode, urlsafe_b64encode):
        yield encode(data).decode()
        for before in range(3):
            bits = 8 * before
            whole = encode(bytes(before) + data).decode()
            # Characters that also encode bits of a neighbour are left out at both ends.
            yield whole[(bits + 5) // 6 : (bits + 8 * len(data)) // 6]


def _named_values(secret: str) -> Iterator[str]:
    for quoted, single, bare in _NAMED.findall(secret):
        yield quoted or single or bare
    for line in _NAMED_LINE.findall(secret):
        yield line.strip()
    for match in _CHPASSWD.finditer(secret):
        yield from _OF_USER.findall(match.group())


def _overlap(text: str, word: str) -> int:
    end = text[-len(word) :]
    place = end.find(word[:_MIN_OVERLAP])
    while place >= 0:
        if word.startswith(end[place:]):
            return len(end) - place
        place = end.find(word[:_MIN_OVERLAP], place + 1)
    return 0


def _looks_secret(word: str) -> bool:
    """Whether it looks like a key or token: long, with digits or longer still, and no address, path or key."""
    if len(word) < TOKEN_LENGTH or word.endswith(":") or word.startswith("/") or "://" in word:
        return False
    return len(word) >= LONG_TOKEN_LENGTH or any(letter.isdigit() for letter in word)
