"""Removes secrets from a driver config before it is recorded, and restores them: no credential, no bootstrap document
and no path of this host is recorded.

A value from the credential is replaced by the name of its field, and restored from the current credential, so that a
rotated one takes effect. A kubeconfig is removed entirely. The bootstrap document holds cluster secrets, and some
drivers keep it in their config: it is restored while the machine is created, and never again.
"""

from __future__ import annotations

import base64
import binascii
import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from windrow.core.formats.json import dumps
from windrow.core.text import encode_base64
from windrow.machines.plugin.process.redaction import base64_forms
from windrow.machines.port import HARVESTER, is_synthetic_uid

# Shorter secrets are replaced only where they are the whole value.
_MIN_SUBSTRING = 8
_KUBECONFIG_KEY = "KubeConfigContent"
# Keys of every driver (docker-machine's BaseDriver) that hold paths below the store.
_STORE_KEY, _SSH_KEY_KEY = "StorePath", "SSHKeyPath"
_WINDROW_PREFIX = "Windrow"
_VM_UID_KEY = "WindrowVMUID"
# Shorter documents cannot hold a secret, and could be part of any text.
_MIN_DOCUMENT = 40
_UNPACK_LIMIT = 4 * 2**20


@dataclass(frozen=True)
class SecretSanitizer:
    """Sanitizes and restores the config of one machine: credential fields, paths of this host, and the bootstrap
    document where it is given."""

    driver: str
    credential: Mapping[str, str]
    store: Path
    user_data_path: Path
    document: str = ""

    def sanitize(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """The config as it may be recorded."""
        sanitized = {key: _map_strings(value, self._sanitize_text) for key, value in config.items()}
        for key in (_STORE_KEY, _SSH_KEY_KEY):
            if isinstance(sanitized.get(key), str) and str(sanitized[key]).startswith(str(self.store)):
                sanitized[key] = ""
        if self.driver == HARVESTER and _KUBECONFIG_KEY in sanitized:
            sanitized[_KUBECONFIG_KEY] = ""
        return sanitized

    def restore(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """The config as the driver gets it."""
        restored = {key: _map_strings(value, self._restore_text) for key, value in config.items()}
        if self.driver == HARVESTER:
            restored[_KUBECONFIG_KEY] = self.credential.get("kubeconfigContent", "")
            if is_synthetic_uid(str(restored.get(_VM_UID_KEY, ""))):
                # The Go driver created it, without owner annotations; it must not be identified by them.
                restored |= dict.fromkeys((_VM_UID_KEY, "WindrowMachineUID", "WindrowClusterUID"), "")
        else:
            restored = {key: value for key, value in restored.items() if not key.startswith(_WINDROW_PREFIX)}
        if not restored.get(_STORE_KEY):
            restored[_STORE_KEY] = str(self.store)
        return restored

    def _sanitize_text(self, text: str) -> str:
        if text == str(self.user_data_path):
            return ""
        parts = _replace([text], self._document_forms)
        # Before the credential: a value of it that is replaced within packed bootstrap data would hide the rest of it.
        if self._holds_document("".join(parts)):
            return _UNRESTORABLE_DOCUMENT
        if text in self._credential_base64:
            return self._credential_base64[text]
        whole = dict(reversed(self._credential_forms))
        if text in whole:
            return whole[text]
        forms = [each for each in self._credential_forms if len(each[0]) >= _MIN_SUBSTRING]
        parts = _replace(parts, forms)
        for place, part in enumerate(parts[::2]):
            parts[2 * place] = _BASE64.sub(lambda word: self._credential_base64.get(word[0], word[0]), part)
        text = "".join(parts)
        return _UNRESTORABLE_CREDENTIAL if self._holds_credential(text) else text

    def _restore_text(self, text: str) -> str:
        return _PLACEHOLDER.sub(lambda found: self._restorable_forms.get(found[0], found[0]), text)

    @property
    def _document(self) -> str:
        """The document without the spaces around it; "" where it is too short to hold a secret."""
        stripped = self.document.strip()
        return stripped if len(stripped) >= _MIN_DOCUMENT else ""

    def _holds_document(self, text: str) -> bool:
        """Whether the text holds the document in a form that cannot be restored: within other base64, or gzipped."""
        if not self._document:
            return False
        joined = "".join(text.split())
        if joined.startswith(_GZIP_BASE64) and self._document.encode() in _gunzip(joined):
            return True
        return any(form in joined for form in base64_forms(self._document))

    def _holds_credential(self, text: str) -> bool:
        """Whether base64 in the text holds a value of the credential within something longer, which cannot be restored."""
        if not _BASE64.search(text):
            return False
        joined = "".join(text.split())
        values = {value.strip() for value in self.credential.values()}
        return any(
            form in joined for value in values if len(value) >= _MIN_SUBSTRING for form in base64_forms(value)
        )

    @cached_property
    def _restorable_forms(self) -> Mapping[str, str]:
        """By placeholder."""
        encoded = self._credential_base64.items()
        return {
            placeholder: form
            for form, placeholder in (*self._document_forms, *self._credential_forms, *encoded)
        }

    @cached_property
    def _document_forms(self) -> Sequence[tuple[str, str]]:
        """The forms of the document that can be restored."""
        forms = []
        documents = (("trimmed", self._document), ("whole", self.document)) if self._document else ()
        for name, document in documents:
            encoded = encode_base64(document)
            forms += [
                (encoded.rstrip("="), f"document:{name}:bare"),
                (encoded, f"document:{name}:base64"),
                (dumps(document).decode()[1:-1], f"document:{name}:json"),
                (document, f"document:{name}:text"),
            ]
        return _longest_first(forms)

    @cached_property
    def _credential_forms(self) -> Sequence[tuple[str, str]]:
        """The credential's values as they may stand within a text."""
        forms = []
        for field, value in self.credential.items():
            forms += [(value, f"credential:{field}"), (value.strip(), f"credential:trimmed:{field}")]
        return _longest_first(forms)

    @cached_property
    def _credential_base64(self) -> Mapping[str, str]:
        """The base64 of each value with its placeholder: a word of its own, since within a longer word of base64 it is
        a part of something else, which may be the document."""
        return {
            encode_base64(value): f"${{windrow:credential:base64:{field}}}"
            for field, value in self.credential.items()
            if value
        }


def _replace(parts: Sequence[str], forms: Sequence[tuple[str, str]]) -> list[str]:
    """The parts with each form replaced by its placeholder. They alternate: text, placeholder, text and so on; only text is
    searched, since a form may be a word that placeholders contain."""
    found = list(parts)
    for form, placeholder in forms:
        split, found = found, []
        for place, part in enumerate(split):
            pieces = [part] if place % 2 else part.split(form)
            found.append(pieces[0])
            for piece in pieces[1:]:
                found += (placeholder, piece)
    return found


def _longest_first(forms: Sequence[tuple[str, str]]) -> Sequence[tuple[str, str]]:
    """Each form with its placeholder."""
    named = [(form, f"${{windrow:{name}}}") for form, name in forms if form]
    return sorted(named, key=lambda each: len(each[0]), reverse=True)


_UNRESTORABLE_DOCUMENT = "${windrow:document:lost}"
_UNRESTORABLE_CREDENTIAL = "${windrow:credential:lost}"
_GZIP_BASE64 = "H4sI"
_PLACEHOLDER = re.compile(r"\$\{windrow:[^}]*\}")
# A word of base64, long enough for a secret that may be replaced within a text.
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]{8,}={0,2}")


def _gunzip(text: str) -> bytes:
    try:
        return zlib.decompressobj(31).decompress(base64.b64decode(text), _UNPACK_LIMIT)
    except (zlib.error, binascii.Error, ValueError):
        return b""


def _map_strings(value: Any, change: Callable[[str], str]) -> Any:
    match value:
        case str():
            return change(value)
        case dict():
            return {key: _map_strings(each, change) for key, each in value.items()}
        case list():
            return [_map_strings(each, change) for each in value]
    return value
