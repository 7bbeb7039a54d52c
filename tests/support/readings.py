"""Whether a reading of a raw object is of the types that it names, whatever the object holds."""

import copy
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

Path = tuple[str | int, ...]
WRONG: tuple[Any, ...] = (
    None,
    True,
    5,
    1.5,
    "",
    "text",
    [],
    [5],
    ["text"],
    [None],
    [[]],
    [{}],
    {},
    {"key": []},
)


def paths(raw: Any, path: Path = ()) -> Iterator[Path]:
    """Each field below metadata, at any depth, and the lists' first items."""
    steps = raw.items() if isinstance(raw, dict) else enumerate(raw) if isinstance(raw, list) else ()
    for step, value in steps:
        if path or step != "metadata":
            yield (*path, step)
        yield from paths(value, (*path, step)) if step != "metadata" else ()


def replaced(raw: Any, path: Path, value: Any) -> Any:
    raw = here = copy.deepcopy(raw)
    for step in path[:-1]:
        here = here[step]
    here[path[-1]] = value
    return raw


def faults_of(value: Any, wanted: Any, where: str) -> Iterator[str]:
    """Where the value is not of the type that its annotation names."""
    origin, arguments = typing.get_origin(wanted), typing.get_args(wanted)
    if origin in (typing.Union, types.UnionType):
        found = [list(faults_of(value, one, where)) for one in arguments]
        yield from [] if [] in found else found[0]
    elif origin is tuple:
        if not isinstance(value, tuple):
            yield f"{where}: {value!r}"
            return
        items = (arguments[0],) * len(value) if arguments[-1] is ... else arguments
        for number, (one, kind) in enumerate(zip(value, items, strict=True)):
            yield from faults_of(one, kind, f"{where}[{number}]")
    elif origin is frozenset:
        if not isinstance(value, frozenset):
            yield f"{where}: {value!r}"
            return
        for one in value:
            yield from faults_of(one, arguments[0], where)
    elif origin is typing.Literal:
        if type(value) is not str or value not in arguments:
            yield f"{where}: {value!r}"
    elif origin is not None:
        if not isinstance(value, Mapping):
            yield f"{where}: {value!r}"
            return
        for one in (*value, *(value.values() if arguments[1] is str else ())):
            yield from faults_of(one, str, where)
    elif is_dataclass(wanted):
        hints = typing.get_type_hints(wanted)
        for one in fields(wanted):
            yield from faults_of(getattr(value, one.name), hints[one.name], f"{where}.{one.name}")
    elif type(value) is not wanted and not issubclass(wanted, type(value)):
        yield f"{where}: {value!r}"


def faulty_readings(read: Callable[[Any], Any], sound: Any) -> list[str]:
    """What `read` makes of `sound` with one field of a wrong JSON type, where that is no reading of the types it names.

    To raise is no fault: the informer keeps the reading before, and names the object.
    """
    wanted = typing.get_type_hints(read)["return"]
    faults = list(faults_of(read(sound), wanted, "sound"))
    for path in paths(sound):
        for wrong in WRONG:
            try:
                reading = read(replaced(sound, path, wrong))
            except Exception:
                continue
            found = faults_of(reading, wanted, "")
            faults += [f"{'.'.join(map(str, path))} = {wrong!r} gives {one}" for one in found]
    return faults
