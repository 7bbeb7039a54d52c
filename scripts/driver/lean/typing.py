"""Stands for the standard library's `typing` in the one-file driver.

Types are checked when the driver is written. What is left at run time are the names that modules import, base classes and
aliases that are subscripted while a module loads; for them the real module costs every process 2 ms.
"""

from __future__ import annotations

from types import GenericAlias

TYPE_CHECKING = False


class _Form:
    """A special form, plain or subscripted."""

    def __init__(self, *arguments: object) -> None:
        self.__args__ = arguments

    def __getitem__(self, arguments: object) -> _Form:
        return _Form(*(arguments if isinstance(arguments, tuple) else (arguments,)))

    def __or__(self, other: object) -> _Form:
        return _Form(self, other)

    __ror__ = __or__


# `dataclasses` looks for subscripted class variables among these.
_GenericAlias = GenericAlias

Any, Literal, Final, ClassVar = _Form(), _Form(), _Form(), _Form()
BinaryIO, NoReturn, Self = _Form(), _Form(), _Form()


class TypeVar:
    """A parameter of an alias such as `Operation[R]`."""

    def __init__(self, name: str, *_: object, **options: object) -> None:
        self.__name__ = name

    def __typing_subst__(self, argument: object) -> object:
        return argument


class Generic:
    """A base class."""

    __slots__ = ()
    __class_getitem__ = classmethod(GenericAlias)


class Protocol:
    """A base class."""

    __slots__ = ()
    __class_getitem__ = classmethod(GenericAlias)


def get_args(form: object) -> tuple[object, ...]:
    return getattr(form, "__args__", ())


def assert_never(value: object) -> None:
    raise AssertionError(f"expected code to be unreachable, but got: {value!r}")
