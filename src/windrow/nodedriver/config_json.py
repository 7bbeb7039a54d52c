"""Configurations as a host keeps them (the `Driver` object of config.json), in and out.

Loading follows the Go driver, whose files of every version are understood, and whose own loader understands ours.
Afterwards the kubeconfig, and nothing else, is taken from the host's command line or the environment if it is there,
so that a renewed credential takes effect on machines that exist.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from windrow.core.json import dumps
from windrow.nodedriver.base64_text import decode_if_base64
from windrow.nodedriver.config import KEYS, Configuration, InvalidDriverConfig, dump_driver_config
from windrow.nodedriver.go_compat.json import decode, fit_value
from windrow.nodedriver.go_compat.shapes import STORED, STRUCTURES, read_structure
from windrow.nodedriver.go_compat.syntax import GoJsonError
from windrow.nodedriver.options import OPTIONS

_KUBECONFIG = next(option for option in OPTIONS if option.key == "KubeConfigContent")


def load(
    text: bytes, base: Configuration, argv: Sequence[str] = (), env: Mapping[str, str] | None = None
) -> Configuration:
    """SetConfigRaw: `onto` with what `text` holds, and the kubeconfig that `argv` (of the whole process) or `env`
    bring. Raises BadMemory in Go's words, and then nothing of `text` counts."""
    with _as_invalid_driver_config():
        loaded = _overlay(decode(text, STORED), base)
    override = kubeconfig_override(argv, env or {})
    return replace(loaded, kubeconfig_content=override) if override else loaded


def load_driver_config(driver_config: Mapping[str, Any], base: Configuration | None = None) -> Configuration:
    """The same for a configuration that somebody else has parsed, and without a look at the process. Raises BadMemory."""
    with _as_invalid_driver_config():
        return _overlay(fit_value(driver_config, STORED), base or Configuration())


@contextmanager
def _as_invalid_driver_config() -> Iterator[None]:
    try:
        yield
    except GoJsonError as error:
        prefix = "error unmarshalling driver config JSON: " if str(error).startswith("json: ") else ""
        raise InvalidDriverConfig(f"{prefix}{error}") from error


def _overlay(found: Mapping[str, Any], base: Configuration) -> Configuration:
    """`found` over what was known: what is missing stays, and so does a value that is null; a null structure goes."""
    changes: dict[str, Any] = {}
    for key, value in found.items():
        if key in STRUCTURES:
            changes[KEYS[key]] = read_structure(key, value)
        elif value is not None:
            changes[KEYS[key]] = tuple(value) if isinstance(value, list) else value
    return replace(base, **changes)


def dump(configuration: Configuration) -> bytes:
    """GetConfigRaw: every key, in Go's order, then ours."""
    return dumps(dump_driver_config(configuration))


def kubeconfig_override(argv: Sequence[str], env: Mapping[str, str]) -> str:
    """The kubeconfig on the host's command line, else in the environment; "" where neither has one.

    A value is everything behind the first `=`, or the next argument unless that is an option itself. Empty values
    are no kubeconfig: they do not take away the one that is stored.
    """
    found = ""
    given = False
    for place, argument in enumerate(argv):
        name, equals, value = argument.lstrip("-").partition("=")
        if not argument.startswith("-") or name != _KUBECONFIG.flag:
            continue
        given = True
        if not equals:
            following = argv[place + 1] if place + 1 < len(argv) else "-"
            value = "" if _is_option(following) else following
        found = value
    return decode_if_base64(found if given else env.get(_KUBECONFIG.env, ""))


def _is_option(argument: str) -> bool:
    """A YAML document may start with dashes too, but then it has a second line."""
    return argument.startswith("-") and "\n" not in argument
