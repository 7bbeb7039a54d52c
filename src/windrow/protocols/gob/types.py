"""Go's types as values, and `fits`, which checks a decoded value against one."""

from __future__ import annotations

TYPE_CHECKING = (
    False  # the plugin starts faster without typing; type checkers treat any variable of this name as true
)
if TYPE_CHECKING:
    from typing import Any


class Type:
    """One Go type. Two are equal when they are the same type in Go."""

    __slots__ = ("key",)
    key: tuple[object, ...]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Type) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)


class Basic(Type):
    """A type that needs no description on the wire; `id` identifies it in every stream."""

    __slots__ = ("id", "name")

    def __init__(self, name: str, id: int) -> None:
        self.name = name
        self.id = id
        self.key = (name,)

    def __repr__(self) -> str:
        return self.name.upper()


BOOL = Basic("bool", 1)
INT = Basic("int", 2)
UINT = Basic("uint", 3)
FLOAT = Basic("float", 4)
BYTES = Basic("bytes", 5)
STRING = Basic("string", 6)
INTERFACE = Basic("interface", 8)


def _declared(name: str) -> str:
    """A name that makes a type of its own. `[]string` is none: so Go prints a type that has no name."""
    return "" if name.startswith(("[", "map[")) else name


class Slice(Type):
    """`[]elem`. `name` is what its description carries: a declared name, or Go's printed form (`[]string`) where the
    type is first used as the field of a struct. The printed form does not make it another type.
    """

    __slots__ = ("elem", "name")

    def __init__(self, elem: Type, name: str = "") -> None:
        self.elem = elem
        self.name = name
        self.key = ("[]", _declared(name), elem.key)

    def __repr__(self) -> str:
        return f"Slice({self.elem!r}, {self.name!r})"


class MapOf(Type):
    """`map[key]elem`; `name` as in Slice."""

    __slots__ = ("elem", "key_type", "name")

    def __init__(self, key: Type, elem: Type, name: str = "") -> None:
        self.key_type = key
        self.elem = elem
        self.name = name
        self.key = ("map", _declared(name), key.key, elem.key)

    def __repr__(self) -> str:
        return f"MapOf({self.key_type!r}, {self.elem!r}, {self.name!r})"


class Struct(Type):
    """A struct with its exported fields in Go's order; a pointer to it is the same on the wire."""

    __slots__ = ("fields", "name")

    def __init__(self, name: str, fields: tuple[tuple[str, Type], ...]) -> None:
        self.name = name
        self.fields = fields
        self.key = ("struct", name, tuple((field, type.key) for field, type in fields))

    def __repr__(self) -> str:
        return f"Struct({self.name!r}, {self.fields!r})"


EMPTY = Struct("", ())
"""Go's `struct{}`."""


class Interface:
    """A value in an interface, with the name under which its type is registered in Go."""

    __slots__ = ("name", "value")

    def __init__(self, name: str, value: Any) -> None:
        self.name = name
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Interface) and (self.name, self.value) == (other.name, other.value)

    __hash__ = None  # type: ignore[assignment]  # the value may be a list or a dict

    def __repr__(self) -> str:
        return f"Boxed({self.name!r}, {self.value!r})"


# In Python True is an int; in Go it is not.
_PYTHON: dict[str, tuple[type, ...]] = {
    "bool": (bool,),
    "int": (int,),
    "uint": (int,),
    "float": (float,),
    "bytes": (bytes,),
    "string": (str,),
    "interface": (Interface, type(None)),
}


def fits(type: Type, value: object) -> bool:
    """Whether a decoded value is of that type: of the same kind, and so is all that it holds.

    As in Go, fields are matched by name: missing ones are zero, unknown ones are ignored. The value in an interface is
    not checked.
    """
    if isinstance(type, Basic):
        return value.__class__ in _PYTHON[type.name] and not (type is UINT and _is_negative(value))
    if isinstance(type, Slice):
        return isinstance(value, list) and all(fits(type.elem, each) for each in value)
    if not isinstance(value, dict):
        return False
    if isinstance(type, MapOf):
        return all(fits(type.key_type, key) and fits(type.elem, each) for key, each in value.items())
    assert isinstance(type, Struct)
    return all(fits(field, value[name]) for name, field in type.fields if name in value)


def _is_negative(value: object) -> bool:
    return isinstance(value, int) and value < 0
