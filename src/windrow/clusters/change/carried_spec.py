"""What snapshots of etcd carry of the spec of their Cluster: all but what looks like a credential.

It lies in a ConfigMap of the guest, and beside each file in S3, unencrypted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from windrow.clusters.api.operations.snapshot import without_operations
from windrow.clusters.change.revisions import MAX_SEARCHED, is_credential

REFERENCE = "secret://"  # the name of a Secret, not what it holds


def carried_spec(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The spec of a Cluster without operations that are carried out once, and without credentials."""
    carried = _carry("spec", without_operations(spec))
    return dict(carried)


def with_credentials(then: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, Any]:
    """What a snapshot carries, with the credentials of now, which it does not carry."""
    found = dict(then)
    for key, value in now.items():
        before = then.get(key)
        if key not in then and _is_hidden(key, value):
            found[key] = value
        elif isinstance(before, Mapping) and isinstance(value, Mapping):
            found[key] = with_credentials(before, value)
        elif isinstance(before, list) and _carry(key, value) == before:
            found[key] = value
    return found


def _carry(path: str, value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _carry(key, one) for key, one in value.items() if not _is_hidden(key, one)}
    if isinstance(value, list):
        return [
            _carry(path, one) for one in value if not _is_hidden_variable(one) and not _is_hidden("", one)
        ]
    return value


def _is_hidden(name: str, value: Any) -> bool:
    """Whether a value is left out whole; of maps and lists, what they hold is asked about."""
    if isinstance(value, Mapping | list):
        return is_credential(name, "-")  # by its name alone
    text = str(value)
    if text.startswith(REFERENCE):
        return False
    if is_credential(name, value):
        return True
    step = MAX_SEARCHED // 2
    return any(is_credential("", text[at : at + MAX_SEARCHED]) for at in range(step, len(text), step))


def _is_hidden_variable(value: Any) -> bool:
    """Of a list of names and values, as of the environment."""
    return (
        isinstance(value, Mapping)
        and isinstance(value.get("name"), str)
        and _is_hidden(value["name"], value.get("value"))
    )
