"""Between a driver's configuration and the Memory that is written down: no credential is in it, no bootstrap document
and no path of this host.

What came from the credential is replaced by the name of its field, and put back from the credential of the day: a
rotated one takes effect by itself. A kubeconfig is left out as a whole. The document holds the cluster's secrets, and
some drivers keep what they have read of it: it is put back while the machine is made, and never again.
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

from windrow.formats.json import dumps
from windrow.machines.port import HARVESTER, bears_no_marks
from windrow.machines.redaction import base64_forms

# Within a longer text only what cannot be there by chance is taken for the credential.
_LONG = 8
_KUBECONFIG = "KubeConfigContent"
# Keys of every driver (docker-machine's BaseDriver) that hold paths below the store.
_STORE, _KEY = "StorePath", "SSHKeyPath"
_OURS = "Windrow"
_VM_UID = "WindrowVMUID"
# A document with a secret in it is longer; a shorter one could be part of anything.
_DOCUMENT_FROM = 40
_UNPACKED = 4 * 2**20
_DEEPEST = 3  # base64 of gzip of base64


@dataclass(frozen=True)
class Seal:
    """What is taken out of one machine's configuration and put back: credential fields, its bootstrap document where
    that is at hand, and its store on this host."""

    driver: str
    credential: Mapping[str, str]
    store: Path
    user_data: Path
    document: str = ""

    def close(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """The configuration as it may be written down."""
        sealed = {key: _walk(value, self._hide) for key, value in config.items()}
        for key in (_STORE, _KEY):
            if isinstance(sealed.get(key), str) and str(sealed[key]).startswith(str(self.store)):
                sealed[key] = ""
        if self.driver == HARVESTER and _KUBECONFIG in sealed:
            sealed[_KUBECONFIG] = ""
        return sealed

    def open(self, memory: Mapping[str, Any]) -> dict[str, Any]:
        """The configuration as the driver takes it."""
        opened = {key: _walk(value, self._show) for key, value in memory.items()}
        if self.driver == HARVESTER:
            opened[_KUBECONFIG] = self.credential.get("kubeconfigContent", "")
            if bears_no_marks(str(opened.get(_VM_UID, ""))):
                # The Go driver made it: it bears no marks, and must not be looked for by them.
                opened |= dict.fromkeys((_VM_UID, "WindrowMachineUID", "WindrowClusterUID"), "")
        else:
            opened = {key: value for key, value in opened.items() if not key.startswith(_OURS)}
        if not opened.get(_STORE):
            opened[_STORE] = str(self.store)
        return opened

    def _hide(self, text: str) -> str:
        if text == str(self.user_data):
            return ""
        text = self._without_document(text)
        for field, secret in self.credential.items():
            if not secret:
                continue
            if text in (secret, secret.strip()):
                return _mark(field)
            if text == _encoded(secret):
                return _mark(field, encoded=True)
            if len(secret) >= _LONG:
                text = text.replace(secret, _mark(field))
        return text

    def _show(self, text: str) -> str:
        if "${windrow:" not in text:
            return text
        for form, mark in self._forms:
            text = text.replace(mark, form)
        for field, secret in self.credential.items():
            text = text.replace(_mark(field, encoded=True), _encoded(secret))
            text = text.replace(_mark(field), secret)
        return text

    def _without_document(self, text: str) -> str:
        for form, mark in self._forms:
            text = text.replace(form, mark)
        return self._stand_in(text) if self._forms else text

    def _stand_in(self, text: str) -> str:
        """What stands for a text that holds the document in a way that cannot be cut out."""
        document = self.document.strip()
        needles = [form.encode() for form in (document, *base64_forms(document))]
        layers = list(_layers(text.encode(errors="replace")))
        if not any(needle in layer for layer in layers for needle in needles):
            return text
        match [layer.strip() == document.encode() for layer in layers]:
            case [_, True, *_]:
                return _ENCODED
            case [_, _, True, *_] if layers[1].startswith(_GZIP):
                return _PACKED
        return _LOST

    @cached_property
    def _forms(self) -> Sequence[tuple[str, str]]:
        """The document as it may stand in a configuration, and what stands for it; the longest first."""
        trimmed = self.document.strip()
        if len(trimmed) < _DOCUMENT_FROM:
            return ()
        forms = [(_packed(self.document), _PACKED)]
        for name, document in (("trimmed", trimmed), ("whole", self.document)):
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
_ENCODED = "${windrow:document:whole:base64}"
_PACKED = "${windrow:document:gzip}"
_LOST = "${windrow:document:lost}"
_GZIP = b"\x1f\x8b"


def _packed(document: str) -> str:
    return base64.b64encode(gzip.compress(document.encode(), mtime=0)).decode()


def _layers(data: bytes) -> Iterator[bytes]:
    """The data itself, and one by one what is encoded or packed in it."""
    for _ in range(_DEEPEST):
        yield data
        if not (data := _unpacked(data) if data.startswith(_GZIP) else _decoded(data)):
            return
    yield data


def _unpacked(data: bytes) -> bytes:
    try:
        return zlib.decompressobj(31).decompress(data, _UNPACKED)
    except zlib.error:
        return b""


def _decoded(data: bytes) -> bytes:
    """What it is base64 of, whichever and however folded; nothing where it is none."""
    plain = b"".join(data.split()).translate(bytes.maketrans(b"-_", b"+/")).rstrip(b"=")
    try:
        return base64.b64decode(plain + b"=" * (-len(plain) % 4), validate=True)
    except binascii.Error:
        return b""


def _mark(field: str, *, encoded: bool = False) -> str:
    return f"${{windrow:credential:{'base64:' if encoded else ''}{field}}}"


def _encoded(secret: str) -> str:
    return base64.b64encode(secret.encode()).decode()


def _walk(value: Any, change: Callable[[str], str]) -> Any:
    match value:
        case str():
            return change(value)
        case dict():
            return {key: _walk(each, change) for key, each in value.items()}
        case list():
            return [_walk(each, change) for each in value]
    return value
