"""Whether a credential was read whole: the beginning of a file that is being written may be a kubeconfig, too."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping

from windrow.kubernetes.kubeconfig import ClientConfig

_BLOCK = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----\n(.*?)\n?-----END \1-----", re.DOTALL)
_CONTEXT = "current-context"


def find_missing_part(access: ClientConfig, texts: Mapping[str, str], before: Mapping[str, str]) -> str:
    """What is missing, "" when nothing is. `texts` and `before` are the files by path, now and when last in use."""
    if not (access.token or access.certificate or access.token_file or access.exec):
        return "it holds no token and no client certificate"
    for name in ("ca", "certificate", "key"):
        pem = getattr(access, name)
        if pem and not is_complete_pem(pem):
            return (
                f"its PEM text ({'certificate-authority' if name == 'ca' else 'client-' + name}) is cut off"
            )
    if _names_context(before) and not _names_context(texts):
        return f"it has no {_CONTEXT} any more"
    return ""


def is_complete_pem(pem: str) -> bool:
    """Whether every block that begins ends, too, and is base64 between."""
    blocks = _BLOCK.findall(pem.replace("\r\n", "\n"))
    return len(blocks) == pem.count("-----BEGIN ") > 0 and all(_is_base64(body) for _, body in blocks)


def _is_base64(body: str) -> bool:
    if ":" in body:
        return True  # headers of an old-style key
    try:
        return bool(base64.b64decode("".join(body.split()), validate=True))
    except binascii.Error:
        return False


def _names_context(texts: Mapping[str, str]) -> bool:
    return any(_CONTEXT in text for text in texts.values())
