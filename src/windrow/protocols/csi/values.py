"""Messages of CSI as plain values and back, for callers that are not to know protobuf.

A message is a dict by the names of the protocol's fields. An enum is its name, a wrapper (BoolValue) what it holds, a
64-bit integer an int, bytes bytes. Fields that are not set are absent; a message that is set and empty is an empty dict.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from google.protobuf import message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from windrow.protocols.csi.services import SERVICES, Method, methods_of

_WRAPPERS = frozenset({"google.protobuf.BoolValue", "google.protobuf.Int64Value"})

METHODS: Mapping[str, Method] = {
    name: method for service in SERVICES for name, method in methods_of(service).items()
}


def to_message(kind: type[Message], values: Mapping[str, Any]) -> Message:
    """The message with these values. Raises ValueError or TypeError for one that the message cannot hold."""
    descriptor: Any = kind.DESCRIPTOR  # of protobuf's C library, which types do not know
    return _make(descriptor, values)


def to_values(message: Message) -> dict[str, Any]:
    """What is set in the message."""
    return {field.name: _read(field, value) for field, value in message.ListFields()}


def _make(descriptor: Descriptor, values: Any) -> Message:
    if descriptor.full_name in _WRAPPERS:
        values = {"value": values}
    made: dict[str, Any] = {}
    for name, value in values.items():
        field = descriptor.fields_by_name.get(name)
        if field is None:
            raise ValueError(f"{descriptor.full_name} has no field {name}")
        inner = field.message_type
        if inner is None or inner.GetOptions().map_entry:
            made[name] = value  # enums may be given by name
        elif field.is_repeated:
            made[name] = [_make(inner, one) for one in value]
        else:
            made[name] = _make(inner, value)
    return message_factory.GetMessageClass(descriptor)(**made)


def _read(field: FieldDescriptor, value: Any) -> Any:
    inner = field.message_type
    if inner is not None and inner.GetOptions().map_entry:
        return dict(value)
    if field.is_repeated:
        return [_read_one(field, one) for one in value]
    return _read_one(field, value)


def _read_one(field: FieldDescriptor, value: Any) -> Any:
    if field.message_type is not None:
        return value.value if field.message_type.full_name in _WRAPPERS else to_values(value)
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)
        return known.name if known is not None else value
    return value
