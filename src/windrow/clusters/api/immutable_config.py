"""What of its configuration a Cluster keeps: as its first server was given it, which its status records.

A Cluster that asks for something else is told so and goes on as it is: existing machines as they are, and new ones with what
is recorded. With the new value a new server would not join; without any, a lost machine would stay lost for a typing error.
Before its API server has answered, nothing depends on the recorded values, and one of them may be what keeps its first server
from starting: then that server is made anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from windrow.bootstrap.immutable_config import IMMUTABLE_KEYS, ImmutableKey, list_immutable_keys
from windrow.clusters.api.fields import ProblemCollector
from windrow.core.formats.bounds import abbreviate
from windrow.harvester.problems import Severity
from windrow.kubernetes.selectors import read_label_selector

GLOBAL = "spec.rkeConfig.machineGlobalConfig"
DATA_DIRECTORY = "spec.rkeConfig.dataDirectories.k8sDistro"
MAX_VALUE = 1000  # characters of one that is recorded

Selectors = tuple[Mapping[str, Any], ...]


@dataclass(frozen=True, slots=True)
class ImmutableConfig:
    """The keys as the user wrote them, without those that were not set; and where the distribution keeps its data, "" for the
    usual place."""

    keys: Mapping[str, Any] = field(default_factory=dict)
    data_directory: str = ""


def read_immutable_config(status: Mapping[str, Any]) -> ImmutableConfig | None:
    """What the status has recorded; None where the cluster has not begun, or began with an earlier release."""
    raw = status.get("immutableConfig")
    if not isinstance(raw, Mapping):
        return None
    keys = raw.get("machineGlobalConfig")
    return ImmutableConfig(keys if isinstance(keys, Mapping) else {}, str(raw.get("dataDirectory") or ""))


def find_immutable_config(
    distribution: str, config: Mapping[str, Any], data_directory: str
) -> ImmutableConfig:
    """What a cluster keeps whose first server has `config`."""
    keys = [key for key in list_immutable_keys(distribution) if config.get(key.name) not in (None, "")]
    kept = {key.name: True if key.is_secret else config[key.name] for key in keys}
    return ImmutableConfig(kept, data_directory)


def render_immutable_config(config: ImmutableConfig, before: ImmutableConfig | None) -> dict[str, Any]:
    """The field of the status, as a merge patch over what was recorded before."""
    gone = dict.fromkeys(before.keys) if before else {}
    return {"machineGlobalConfig": {**gone, **config.keys}, "dataDirectory": config.data_directory}


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """The configuration that a Cluster asks for, and how it is read: `pools` are the labels of the machines of each pool of
    servers, the one that begins first; `find_provider` gives the cloud provider of a configuration."""

    distribution: str
    global_config: Mapping[str, Any]
    selectors: Selectors
    pools: Sequence[Mapping[str, str]]
    find_provider: Callable[[Mapping[str, Any]], str]

    @property
    def keys(self) -> list[ImmutableKey]:
        return list_immutable_keys(self.distribution)

    def list_configs(self) -> Iterator[Mapping[str, Any]]:
        """The configuration of each pool as far as it may differ here, the same one once."""
        names = {key.name for key in self.keys}
        relevant = [
            (read_label_selector(entry.get("machineLabelSelector")), entry.get("config") or {})
            for entry in self.selectors
            if not names.isdisjoint(entry.get("config") or {})
        ]
        seen = set()
        for labels in self.pools or ({},):
            fits = tuple(selector.matches(labels) for selector, _ in relevant)
            if fits in seen:
                continue
            seen.add(fits)
            merged = dict(self.global_config)
            for (_, config), fit in zip(relevant, fits, strict=True):
                merged |= config if fit else {}
            yield merged

    def values_of(self, config: Mapping[str, Any]) -> dict[str, str]:
        provider = self.find_provider(config)
        return {key.name: key.find_value(config, self.distribution, provider) for key in self.keys}

    def describe(self, key: ImmutableKey, config: Mapping[str, Any]) -> str:
        return key.describe(config, self.distribution, self.find_provider(config))

    def find_place(self, name: str) -> str:
        """Where the key is written, or belongs."""
        places = (
            f"spec.rkeConfig.machineSelectorConfig[{place}].config.{name}"
            for place, entry in enumerate(self.selectors)
            if name in (entry.get("config") or {})
        )
        return f"{GLOBAL}.{name}" if name in self.global_config else next(places, f"{GLOBAL}.{name}")


def check_servers(asked: ServerConfig, problems: ProblemCollector, severity: Severity = "error") -> bool:
    """Whether its servers agree, and no value is too long to be recorded."""
    before = len(problems.found)
    first, *others = asked.list_configs()
    for key in asked.keys:
        for config in (first, *others):
            if key.is_free_text and len(str(config.get(key.name, ""))) > MAX_VALUE:
                where = asked.find_place(key.name)
                problems.add(where, f"{where} is too long", f"write {MAX_VALUE} characters at most", severity)
                break
    values = asked.values_of(first)
    for config in others:
        for key in _list_differing(asked, asked.values_of(config), values):
            where = asked.find_place(key.name)
            problems.add(
                where,
                f"machineSelectorConfig gives servers different values of {key.name}, "
                f"{_quote(asked.describe(key, first))} and {_quote(asked.describe(key, config))}, and all servers of a cluster must share it",
                "write it in machineGlobalConfig, for all machines",
                severity,
            )
    return len(problems.found) == before


def find_changes(asked: ServerConfig, recorded: ImmutableConfig, data_directory: str) -> tuple[str, ...]:
    """What is asked for and differs from what is recorded: for a cluster that has not started, whose first server is made
    anew with it."""
    changes = {
        key.name: f"{key.name} is {_quote(asked.describe(key, config))}, and the init server began with "
        f"{_quote(asked.describe(key, recorded.keys))}"
        for config in asked.list_configs()
        for key in _list_changed(asked, config, recorded)
    }
    if data_directory != recorded.data_directory:
        changes[DATA_DIRECTORY] = (
            f"{DATA_DIRECTORY} is {_quote(data_directory)}, and the init server began with {_quote(recorded.data_directory)}"
        )
    return tuple(changes.values())


def keep_recorded(
    asked: ServerConfig, recorded: ImmutableConfig, problems: ProblemCollector
) -> tuple[dict[str, Any], Selectors]:
    """The configuration for new machines: what is asked, but for the keys that differ from what is recorded, each of which is
    a problem."""
    differing: dict[str, ImmutableKey] = {}
    for config in asked.list_configs():
        for key in _list_changed(asked, config, recorded):
            if key.name not in differing:
                differing[key.name] = key
                _refuse(key, config, asked, recorded, problems)
    kept = {name: value for name, value in recorded.keys.items() if name in differing}
    restored = {name: value for name, value in kept.items() if not differing[name].is_secret}
    without = _without(asked.global_config, differing)
    selectors = tuple(
        {**entry, "config": _without(entry.get("config") or {}, differing)} for entry in asked.selectors
    )
    return ({**without, **restored}, selectors) if differing else (dict(asked.global_config), asked.selectors)


def keep_data_directory(asked: str, recorded: ImmutableConfig, problems: ProblemCollector) -> str:
    """The directory for new machines: the recorded one. Another is a problem, as in Rancher."""
    if asked != recorded.data_directory and not problems.has(DATA_DIRECTORY):
        was = recorded.data_directory
        problems.add(
            DATA_DIRECTORY,
            f"{DATA_DIRECTORY} is {_quote(asked)}, and the cluster began with {_quote(was)}: its machines have their data there",
            _hint(DATA_DIRECTORY.rpartition(".")[2], was),
        )
    return recorded.data_directory


def is_restored(field: str) -> bool:
    """Whether the field of a problem is one that new machines have as it is recorded, whatever the spec says."""
    restored = {key.name for key in IMMUTABLE_KEYS if not key.is_secret}
    is_config = field.startswith((f"{GLOBAL}.", "spec.rkeConfig.machineSelectorConfig["))
    return field == DATA_DIRECTORY or (is_config and field.rpartition(".")[2] in restored)


def _list_changed(
    asked: ServerConfig, config: Mapping[str, Any], recorded: ImmutableConfig
) -> list[ImmutableKey]:
    """The keys of which `config` has another value than the recorded one."""
    differing = _list_differing(asked, asked.values_of(config), asked.values_of(recorded.keys))
    # Written as it was, it follows from another key.
    return [key for key in differing if config.get(key.name) != recorded.keys.get(key.name)]


def _list_differing(
    asked: ServerConfig, these: Mapping[str, str], those: Mapping[str, str]
) -> Iterable[ImmutableKey]:
    return [key for key in asked.keys if these[key.name] != those[key.name]]


def _refuse(
    key: ImmutableKey,
    config: Mapping[str, Any],
    asked: ServerConfig,
    recorded: ImmutableConfig,
    problems: ProblemCollector,
) -> None:
    was, now = asked.describe(key, recorded.keys), asked.describe(key, config)
    hint = "put it back; no machine is made meanwhile" if key.is_secret else _hint(key.name, was)
    fault = f"{key.name} is {_quote(now)}, and the cluster began with {_quote(was)}: {key.why}"
    problems.add(asked.find_place(key.name), fault, hint)


def _hint(name: str, was: str) -> str:
    back = f"write {name}: {was} again" if was else f"remove {name} again"
    return f"{back}: new machines are made with it until then; another value needs a new Cluster"


def _quote(value: str) -> str:
    return abbreviate(value) if value else "none"


def _without(config: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    return {key: value for key, value in config.items() if key not in set(names)}
