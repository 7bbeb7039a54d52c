"""Texts without the secrets that are known: one mechanism for what a server answers and for a support bundle. Pure.

A secret is known as it is, and as JSON, base64 and a URL have it. White space counts nowhere, so a line end within it does not hide it.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from urllib.parse import quote, quote_plus

from windrow.core.formats.json import dumps
from windrow.core.text import encode_base64

# A run of so many characters of a secret is masked, so that a part of it, cut anywhere, is not told either.
RUN = 8
# Of longer texts only the beginning is looked at, and told; of longer secrets only the beginning in its other forms.
MAX_TEXT = 4096
MASK = "***"
# Forms are known by pieces of at most so many characters, so a text costs as much with one secret as with many alike.
PIECE = 64

_SPACE = re.compile(r"(?:\s|\\[nr])+")
_URL_SAFE = str.maketrans("+/", "-_")


class SecretMask:
    """Masks any run of eight characters of these secrets in short texts."""

    def __init__(self, secrets: Iterable[str]) -> None:
        forms = {form for secret in secrets if secret for form in list_forms(secret[:MAX_TEXT])}
        runs = {form[at : at + RUN] for form in forms for at in range(max(len(form) - RUN, 0) + 1)}
        self._pieces = Pieces(runs, MASK)

    def mask(self, text: str) -> str:
        """The beginning of `text`, each run of characters of a secret as `***`."""
        return self._pieces.mask(text[:MAX_TEXT])


class ValueMask:
    """Masks these secrets in texts of any length, wherever they stand. Those of less than eight characters are left out."""

    def __init__(self, secrets: Iterable[str], mark: str) -> None:
        forms = {form for secret in secrets for form in _forms_of_value(secret)}
        self._pieces = Pieces({piece for form in forms for piece in _cut(form)}, mark)

    def mask(self, text: str) -> str:
        """`text` with the mark in place of each secret; of what stands side by side, one."""
        return self._pieces.mask(text)


class Pieces:
    """Finds short texts in long ones, and puts a mark there."""

    def __init__(self, pieces: Iterable[str], mark: str) -> None:
        self._known = frozenset(pieces) - {""}
        self._mark = mark
        self._head = min((RUN, *map(len, self._known)))
        lengths: dict[str, set[int]] = {}
        for piece in self._known:
            lengths.setdefault(piece[: self._head], set()).add(len(piece))
        self._lengths = {head: sorted(found, reverse=True) for head, found in lengths.items()}

    def mask(self, text: str) -> str:
        """`text` with the mark in place of each piece."""
        flat = _SPACE.sub("", text)
        hidden = list(self._find(flat)) if self._known else []
        if not hidden:
            return text
        starts, origins, place = [0], [0], 0
        for gap in _SPACE.finditer(text):
            starts.append(starts[-1] + gap.start() - place)
            origins.append(place := gap.end())

        def origin(place: int) -> int:
            found = bisect_right(starts, place) - 1
            return origins[found] + place - starts[found]

        shown, told_to = [], 0
        for begin, end in hidden:
            shown += [text[told_to : origin(begin)], self._mark]
            told_to = origin(end - 1) + 1
        return "".join((*shown, text[told_to:]))

    def _find(self, flat: str) -> Iterator[tuple[int, int]]:
        """Where pieces stand, those that touch as one."""
        begin = end = -1
        for at in range(len(flat) - self._head + 1):
            for length in self._lengths.get(flat[at : at + self._head], ()):
                if at + length > end and flat[at : at + length] in self._known:
                    if at > end:
                        if end > 0:
                            yield begin, end
                        begin = at
                    end = at + length
                    break
        if end > 0:
            yield begin, end


def list_forms(secret: str) -> set[str]:
    """The secret as it is, and as JSON, base64 and a URL have it; without white space."""
    escaped = dumps(secret).decode()[1:-1]
    go = escaped.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    twice = dumps(go).decode()[1:-1]
    quoted = {quote(secret, safe=""), quote(secret), quote_plus(secret)}
    lower = {re.sub("%[0-9A-F]{2}", lambda found: found[0].lower(), form) for form in quoted}
    forms = {
        secret,
        escaped,
        go,
        twice,
        escaped.replace("/", "\\/"),
        json.dumps(secret)[1:-1],
        *quoted,
        *lower,
    }
    forms.add(repr(secret)[1:-1])
    for lead in range(3):  # what stands before it shifts its base64
        encoded = encode_base64("\0" * lead + secret)
        whole = 4 * ((lead + len(secret.encode())) // 3)
        known = encoded[:whole][(0, 2, 3)[lead] :]
        forms |= {known, known.translate(_URL_SAFE)}
    ended = encode_base64(secret)
    forms |= {ended, ended.translate(_URL_SAFE)}
    return {_SPACE.sub("", form) for form in forms} - {""}


def _forms_of_value(secret: str) -> set[str]:
    if len(_SPACE.sub("", secret)) < RUN:
        return set()
    forms = list_forms(secret[:MAX_TEXT])
    if len(secret) > MAX_TEXT:
        forms.add(_SPACE.sub("", secret))
    return {form for form in forms if len(form) >= RUN}


def _cut(form: str) -> set[str]:
    if len(form) <= PIECE:
        return {form}
    return {form[at : at + PIECE] for at in range(0, len(form) - PIECE, PIECE)} | {form[-PIECE:]}
