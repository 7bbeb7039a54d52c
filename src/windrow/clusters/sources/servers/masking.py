"""What a server says, without the secrets of the request that it answers: a refusal may quote the request."""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import quote

from windrow.core.formats.json import dumps
from windrow.core.text import encode_base64

# A run of so many characters of a secret is masked, so that a part of it, cut anywhere, is not told either.
RUN = 8
# Of longer texts only the beginning is looked at, and told.
MAX_TEXT = 4096
MASK = "***"


class SecretMask:
    """Masks these secrets in texts: as they are, and as JSON, base64 and a URL have them."""

    def __init__(self, secrets: Iterable[str]) -> None:
        forms = {form for secret in secrets if secret for form in _list_forms(secret[:MAX_TEXT])}
        runs = {form[at : at + RUN] for form in forms for at in range(max(len(form) - RUN, 0) + 1)}
        self._runs_by_first: dict[str, list[str]] = {}
        for run in sorted(runs):
            self._runs_by_first.setdefault(run[0], []).append(run)

    def mask(self, text: str) -> str:
        """The beginning of `text`, each run of characters of a secret as `***`."""
        text, shown, hidden_to = text[:MAX_TEXT], [], 0
        for at, letter in enumerate(text):
            for run in self._runs_by_first.get(letter, ()):
                if text.startswith(run, at):
                    if at >= hidden_to:
                        shown.append(MASK)
                    hidden_to = max(hidden_to, at + len(run))
            if at >= hidden_to:
                shown.append(letter)
        return "".join(shown)


def _list_forms(secret: str) -> set[str]:
    escaped = dumps(secret).decode()[1:-1]
    go = escaped.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    twice = dumps(go).decode()[1:-1]
    forms = {secret, escaped, go, twice, escaped.replace("/", "\\/"), quote(secret, safe="")}
    for lead in range(3):  # what stands before it shifts its base64
        encoded = encode_base64("\0" * lead + secret)
        whole = 4 * ((lead + len(secret.encode())) // 3)
        known = encoded[:whole][(0, 2, 3)[lead] :]
        forms |= {known, known.translate(_URL_SAFE)}
    return forms - {""}


_URL_SAFE = str.maketrans("+/", "-_")
