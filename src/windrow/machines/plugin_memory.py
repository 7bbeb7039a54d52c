"""Between a driver's configuration and the Memory that is written down: no credential is in it, no path of this host.

What came from the credential is replaced by the name of its field, and put back from the credential of the day: a
rotated one takes effect by itself. A kubeconfig is left out as a whole.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from windrow.machines.port import HARVESTER, bears_no_marks

# Within a longer text only what cannot be there by chance is taken for the credential.
_LONG = 8
_KUBECONFIG = "KubeConfigContent"
# Keys of every driver (docker-machine's BaseDriver) that hold paths below the store.
_STORE, _KEY = "StorePath", "SSHKeyPath"
_OURS = "Windrow"
_VM_UID = "WindrowVMUID"


@dataclass(frozen=True, slots=True)
class Seal:
    """What is taken out of one machine's configuration and put back: credential fields, and its store on this host."""

    driver: str
    credential: Mapping[str, str]
    store: Path
    user_data: Path

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
        for field, secret in self.credential.items():
            text = text.replace(_mark(field, encoded=True), _encoded(secret))
            text = text.replace(_mark(field), secret)
        return text


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
