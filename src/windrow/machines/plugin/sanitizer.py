"""Removes secrets from a driver config before it is recorded, and restores them: no credential, no bootstrap document
and no path of this host is recorded.

A value from the credential is replaced by the name of its field, and restored from the current credential, so that a
rotated one takes effect. A kubeconfig is removed entirely. The bootstrap document holds cluster secrets, and some
drivers keep it in their config: it is restored while the machine is created, and never again.
"""

from __future__ import annotations

import base64
import binascii
import gzip
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from windrow.core.json import dumps
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
_MAX_LAYERS = 3  # base64 of gzip of base64


@dataclass(frozen=True)
class SecretSanitizer:
    """What is taken out of one machine's configuration and put back: credential fields, its bootstrap document where
    that is at hand, and its store on this host."""

    driver: str
    credential: Mapping[str, str]
    store: Path
    user_data_path: Path
    document: str = ""

    def sanitize(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """The configuration as it may be written down."""
        sanitized = {key: _map_strings(value, self._sanitize_text) for key, value in config.items()}
        for key in (_STORE_KEY, _SSH_KEY_KEY):
            if isinstance(sanitized.get(key), str) and str(sanitized[key]).startswith(str(self.store)):
                sanitized[key] = ""
        if self.driver == HARVESTER and _KUBECONFIG_KEY in sanitized:
            sanitized[_KUBECONFIG_KEY] = ""
        return sanitized

    def restore(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """The configuration as the driver takes it."""
        restored = {key: _map_strings(value, self._restore_text) for key, value in config.items()}
        if self.driver == HARVESTER:
            restored[_KUBECONFIG_KEY] = self.credential.get("kubeconfigContent", "")
            if is_synthetic_uid(str(restored.get(_VM_UID_KEY, ""))):
                # The Go driver made it: it bears no marks, and must not be looked for by them.
                restored |= dict.fromkeys((_VM_UID_KEY, "WindrowMachineUID", "WindrowClusterUID"), "")
        else:
            restored = {key: value for key, value in restored.items() if not key.startswith(_WINDROW_PREFIX)}
        if not restored.get(_STORE_KEY):
            restored[_STORE_KEY] = str(self.store)
        return restored

    def _sanitize_text(self, text: str) -> str:
        if text == str(self.user_data_path):
            return ""
        text = self._without_document(text)
        for field, value in self.credential.items():
            if not value:
                continue
            if text in (value, value.strip()):
                return _placeholder(field)
            if text == _encoded(value):
                return _placeholder(field, encoded=True)
            if len(value) >= _MIN_SUBSTRING:
                text = text.replace(value, _placeholder(field))
        return text

    def _restore_text(self, text: str) -> str:
        if "${windrow:" not in text:
            return text
        for form, placeholder in self._document_forms:
            text = text.replace(placeholder, form)
        for field, secret in self.credential.items():
            text = text.replace(_placeholder(field, encoded=True), _encoded(secret))
            text = text.replace(_placeholder(field), secret)
        return text

    def _without_document(self, text: str) -> str:
        for form, mark in self._document_forms:
            text = text.replace(form, mark)
        return self._placeholder_for(text) if self._document_forms else text

    def _placeholder_for(self, text: str) -> str:
        """What stands for a text that holds the document in a way that cannot be cut out."""
        document = self.document.strip()
        needles = [form.encode() for form in (document, *base64_forms(document))]
        layers = list(_layers(text.encode(errors="replace")))
        if not any(needle in layer for layer in layers for needle in needles):
            return text
        match [layer.strip() == document.encode() for layer in layers]:
            case [_, True, *_]:
                return _ENCODED_DOCUMENT
            case [_, _, True, *_] if layers[1].startswith(_GZIP_MAGIC):
                return _PACKED_DOCUMENT
        return _UNRESTORABLE_DOCUMENT

    @cached_property
    def _document_forms(self) -> Sequence[tuple[str, str]]:
        """The document as it may stand in a configuration, and what stands for it; the longest first."""
        stripped = self.document.strip()
        if len(stripped) < _MIN_DOCUMENT:
            return ()
        forms = [(_packed(self.document), _PACKED_DOCUMENT)]
        for name, document in (("trimmed", stripped), ("whole", self.document)):
            encoded = _encoded(document)
            for how, form in (
                ("bare", encoded.rstrip("=")),
                ("base64", encoded),
                ("json", dumps(document).decode()[1:-1]),
                ("text", document),
            ):
                forms.append((form, f"${{windrow:document:{name}:{how}}}"))
        return sorted(forms, key=lambda each: len(each[0]), reverse=True)


# The document in base64, and packed before that. Where it was within something else it cannot be put back.
_ENCODED_DOCUMENT = "${windrow:document:whole:base64}"
_PACKED_DOCUMENT = "${windrow:document:gzip}"
_UNRESTORABLE_DOCUMENT = "${windrow:document:lost}"
_GZIP_MAGIC = b"\x1f\x8b"


def _packed(document: str) -> str:
    return base64.b64encode(gzip.compress(document.encode(), mtime=0)).decode()


def _layers(data: bytes) -> Iterator[bytes]:
    """The data itself, and one by one what is encoded or packed in it."""
    for _ in range(_MAX_LAYERS):
        yield data
        if not (data := _unpacked(data) if data.startswith(_GZIP_MAGIC) else _decoded(data)):
            return
    yield data


def _unpacked(data: bytes) -> bytes:
    try:
        return zlib.decompressobj(31).decompress(data, _UNPACK_LIMIT)
    except zlib.error:
        return b""


def _decoded(data: bytes) -> bytes:
    """What it is base64 of, whichever and however folded; nothing where it is none."""
    plain = b"".join(data.split()).translate(bytes.maketrans(b"-_", b"+/")).rstrip(b"=")
    try:
        return base64.b64decode(plain + b"=" * (-len(plain) % 4), validate=True)
    except binascii.Error:
        return b""


def _placeholder(field: str, *, encoded: bool = False) -> str:
    return f"${{windrow:credential:{'base64:' if encoded else ''}{field}}}"


def _encoded(secret: str) -> str:
    return base64.b64encode(secret.encode()).decode()


def _map_strings(value: Any, change: Callable[[str], str]) -> Any:
    match value:
        case str():
            return change(value)
        case dict():
            return {key: _map_strings(each, change) for key, each in value.items()}
        case list():
            return [_map_strings(each, change) for each in value]
    return value
