"""Takes secrets out of objects and texts. Pure.

Three nets, one behind the other, since each alone has holes:

1. By place: the values of a Secret, what is called a password, token or key, inline cloud-init, and any text of several lines.
2. By value: what is in the Secrets that were read is taken out wherever it stands, also within a word, over a line end, as base64, JSON
   or a URL has it (`core.formats.masking`). Values of less than eight letters are, as words of their own.
3. By form: PEM blocks, JSON web tokens, tokens of K3s, RKE2 and Rancher, user and password in a URL, `password: …`.

Nothing tells how long a secret was.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from windrow.core.formats.masking import RUN, ValueMask
from windrow.core.text import encode_base64
from windrow.kubernetes.objects import Raw, secret_texts

REDACTED = "REDACTED"
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
MAX_LINE = 2000  # of a text in an object
MAX_LITERALS = 5000
MAX_DEPTH = 60

# Keys of Secrets whose values are no secret, and are words that stand in many places.
_OPEN_KEYS = frozenset(
    {"namespace", "username", "defaultBucket", "defaultRegion", "defaultEndpoint", "defaultFolder", "type"}
)
_SECRET_KEY = re.compile(
    r"passw|token|secret|private.?key|kubeconfig|credential|user-?data|network-?data|cloud-?(init|config)|access.?key|auth\b",
    re.IGNORECASE,
)
# Keys that name an object, or say something about one.
_NAMES = re.compile(
    r"(secretname|secretref|secretnamespace|credential|kubeconfig)$|name$|ref$|valid$|expir|generation|phase|source$",
    re.IGNORECASE,
)
# Texts that people read, and that may have several lines.
_SENTENCES = frozenset({"message", "because", "for", "next", "hint", "note", "reason", "warnings"})
_WORD = re.compile(r"[A-Za-z0-9+/_-]{6,}")
_PART = re.compile("[/_-]")
_FORMS = (
    re.compile(r"-----BEGIN [A-Z0-9 ]+-----.*?(?:-----END [A-Z0-9 ]+-----|\Z)", re.DOTALL),
    re.compile(r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]*)?"),
    re.compile(r"\bK10[0-9a-fA-F]{16,}::\S+"),
    re.compile(r"\b(?:kubeconfig|token)-[a-z0-9-]+:[A-Za-z0-9]{10,}"),  # of Rancher and Harvester
    re.compile(r"(?<=://)[^/\s:@]*:[^/\s@]+(?=@)"),
    re.compile(r"(?i)(?<=bearer )\S+"),
    re.compile(r"(?i)(?<=basic )[A-Za-z0-9+/=]{8,}"),
)
_ASSIGNED = re.compile(
    r"""(?i)((?:passw(?:or)?d|token|secret|access[_-]?key|api[_-]?key|user[_-]?data)["']?\s*[:=]\s*)(["']?)[^\s"',;}]+"""
)


def secret_values(secrets: Iterable[Mapping[str, Any]]) -> set[str]:
    """What is secret in the Secrets: their values, and of those of several lines the words that look like keys or tokens."""
    found: set[str] = set()
    for raw in secrets:
        for key, text in secret_texts(raw).items():
            if key not in _OPEN_KEYS and len(text) >= 4:
                found |= _secrets_in(text)
    return found


def _secrets_in(text: str) -> set[str]:
    found = {word for word in _WORD.findall(text) if _looks_secret(word)}
    for match in _ASSIGNED.finditer(text):
        found.add(text[match.end(2) : match.end()])
    return found if "\n" in text.strip() else {*found, text.strip()}


def _looks_secret(word: str) -> bool:
    return len(word) >= 12 and any(letter.isdigit() for letter in word) and any(map(str.isalpha, word))


class Redactor:
    """Redacts objects and texts. `values` are secrets that are known (`secret_values`)."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        given = {one for one in values if len(one) >= 4}
        self._mask = ValueMask(given, REDACTED)
        known = {one for one in given if len(one) < RUN or any(map(str.isspace, one))}
        known |= {encode_base64(one) for one in known}
        self._words = {word.rstrip("=") for word in known if _WORD.fullmatch(word.rstrip("="))}
        others = sorted({one for one in known if one.rstrip("=") not in self._words}, key=len, reverse=True)
        self._literals = others[:MAX_LITERALS]
        self._short = [one for one in known if len(one) < 6 and one not in self._literals]

    def text(self, text: str) -> str:
        """The text without secrets."""
        text = self._mask.mask(text)
        for literal in (*self._literals, *self._short):
            if literal in text:
                text = text.replace(literal, REDACTED)
        for form in _FORMS:
            text = form.sub(REDACTED, text)
        text = _ASSIGNED.sub(rf"\1\2{REDACTED}", text)
        return _WORD.sub(self._word, text)

    def _word(self, match: re.Match[str]) -> str:
        word = match[0]
        if word in self._words or any(part in self._words for part in _PART.split(word)):
            return REDACTED
        return word

    def object(self, raw: Raw) -> Raw:
        """The object without secrets and without `managedFields`."""
        metadata = {
            key: value for key, value in (raw.get("metadata") or {}).items() if key != "managedFields"
        }
        annotations = {
            str(key): REDACTED if key == LAST_APPLIED else value
            for key, value in (metadata.get("annotations") or {}).items()
        }
        if annotations:
            metadata["annotations"] = annotations
        redacted = {**raw, "metadata": metadata}
        if raw.get("kind") == "Secret":
            for part in ("data", "stringData"):
                if part in raw:
                    redacted[part] = dict.fromkeys(raw[part] or {}, REDACTED)
        value: Raw = self._value(redacted, "", 0)
        return value

    def _value(self, value: Any, key: str, depth: int) -> Any:
        if depth > MAX_DEPTH:
            return REDACTED
        match value:
            case dict():
                hides = _hides(key) and not _has_name(value)
                return {
                    self.text(str(name)): REDACTED
                    if _hides_inside(value, str(name)) or (hides and isinstance(one, str | int))
                    else self._value(one, str(name), depth + 1)
                    for name, one in value.items()
                }
            case list():
                return [self._value(one, key, depth + 1) for one in value]
            case str():
                return self._string(value, key)
            case _:
                return value

    def _string(self, text: str, key: str) -> str:
        if _hides(key) and text:
            return REDACTED
        is_long = "\n" in text.strip() or len(text) > MAX_LINE
        return REDACTED if is_long and key not in _SENTENCES else self.text(text)


def _hides(key: str) -> bool:
    return bool(_SECRET_KEY.search(key)) and not _NAMES.search(key)


def _hides_inside(parent: Mapping[str, Any], key: str) -> bool:
    """Whether it is the value of an environment variable, or of a change of a field that holds a secret."""
    if key == "value" and "name" in parent:
        return True
    return key != "field" and _hides(str(parent.get("field") or "").rpartition(".")[2])


def _has_name(value: Mapping[str, Any]) -> bool:
    return "name" in value or "kind" in value
