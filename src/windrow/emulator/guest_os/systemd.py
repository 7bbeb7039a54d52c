"""A model of systemd: unit files with drop-ins, enablement, ordering, restarts.

Only services act. `systemctl start` waits as the real one does: for the end of a oneshot's commands, for the readiness
of a `notify` service. A service that fails is started again after RestartSec when its unit has Restart=.
"""

from __future__ import annotations

import asyncio
import posixpath
import re
import shlex
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from windrow.emulator.guest_os.binaries import read_binary
from windrow.emulator.guest_os.operating_system import GuestOS
from windrow.emulator.guest_os.shell.commands import parse_options
from windrow.emulator.guest_os.shell.run import Command, Invocation, Shell
from windrow.emulator.guest_os.system import apply_sysctl_files

_DIRECTORIES = (
    "/etc/systemd/system",
    "/run/systemd/system",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
)
# Targets and services of the image that other units depend on; they are active before any unit that needs them.
_ALWAYS_REACHED = (".target", ".socket", ".slice", ".mount", ".timer", ".path")
CLOUD_FINAL = "cloud-final.service"
# Services that every cloud image has; that they run has no effect here.
_IMAGE_SERVICE_NAMES = (
    "systemd-networkd systemd-resolved systemd-timesyncd systemd-sysctl systemd-modules-load systemd-journald "
    "NetworkManager networking ssh sshd cron rsyslog chronyd iscsid multipathd multipath-tools ufw firewalld "
    "apparmor snapd unattended-upgrades"
)
_IMAGE_SERVICES = frozenset(f"{name}.service" for name in _IMAGE_SERVICE_NAMES.split())


@dataclass(frozen=True, slots=True)
class Unit:
    """One unit file with its drop-ins: for each section the keys with all their values in order."""

    name: str
    sections: Mapping[str, Mapping[str, tuple[str, ...]]] = field(default_factory=dict)

    def values(self, section: str, key: str) -> tuple[str, ...]:
        return self.sections.get(section, {}).get(key, ())

    def value(self, section: str, key: str, default: str = "") -> str:
        values = self.values(section, key)
        return values[-1] if values else default

    def names(self, section: str, key: str) -> list[str]:
        """The space-separated names under a key."""
        return [word for value in self.values(section, key) for word in value.split()]


# What systemd puts for `%` and a letter (systemd.unit(5), "Specifiers"), where it does not depend on the unit.
_FIXED_SPECIFIERS = {
    "t": "/run",
    "S": "/var/lib",
    "C": "/var/cache",
    "L": "/var/log",
    "E": "/etc",
    "T": "/tmp",
    "V": "/var/tmp",
    "h": "/root",
    "s": "/bin/sh",
    "u": "root",
    "U": "0",
    "g": "root",
    "G": "0",
    "%": "%",
}


def expand_specifiers(value: str, name: str, hostname: str = "localhost") -> str:
    """The value as a unit of that name has it. An unknown specifier stays as it is, as in systemd."""
    stem = name.rpartition(".")[0] or name
    prefix, _, instance = stem.partition("@")
    known = {
        **_FIXED_SPECIFIERS,
        "n": name,
        "N": stem,
        "p": prefix,
        "P": prefix,
        "j": prefix.rpartition("-")[2],
        "i": instance,
        "I": instance,
        "H": hostname,
        "l": hostname.partition(".")[0],
    }
    return re.sub(r"%(.)", lambda found: known.get(found[1], found[0]), value)


def parse_unit(name: str, *texts: str, hostname: str = "localhost") -> Unit:
    """The unit that `texts` (the file, then its drop-ins) describe. An empty value clears the earlier ones."""
    sections: dict[str, dict[str, tuple[str, ...]]] = {}
    for text in texts:
        section = ""
        for line in text.replace("\\\n", " ").splitlines():
            line = line.strip()
            if not line or line[0] in "#;":
                continue
            if line.startswith("[") and line.endswith("]"):
                section = line[1:-1]
                continue
            key, sign, value = line.partition("=")
            if not sign:
                continue
            keys = sections.setdefault(section, {})
            key, value = key.strip(), value.strip()
            value = expand_specifiers(value, name, hostname)
            keys[key] = (*keys.get(key, ()), value) if value else ()
    return Unit(name, sections)


@dataclass(slots=True)
class _Service:
    unit: Unit
    started: asyncio.Future[int]
    task: asyncio.Task[None] = field(init=False)
    state: str = "activating"
    restarts: int = 0  # of itself, since it was started
    code: int = 0  # of its last process that ended

    def set_started(self, code: int) -> None:
        """Wake those who wait for its start, with systemctl's exit code. May be repeated."""
        if not self.started.done():
            self.started.set_result(code)


NotifyReady = Callable[[], None]
ServiceProgram = Callable[[Invocation, NotifyReady], Awaitable[int]]


class Systemd:
    """The services of one running machine."""

    def __init__(
        self, guest: GuestOS, commands: dict[str, Command], programs: Mapping[str, ServiceProgram]
    ) -> None:
        self.guest = guest
        self.commands = commands
        self.programs = programs  # by the name in the first line of their binary
        self.cloud_final = asyncio.Event()  # set once cloud-final.service is up
        self._services: dict[str, _Service] = {}
        commands["systemctl"] = self._systemctl
        commands["service"] = self._service_command

    def shell(self, name: str, variables: Mapping[str, str] | None = None) -> Shell:
        """A shell whose output is logged on the console under `name`."""
        return Shell(
            self.guest, self.commands, variables, name=name, log=lambda line: self.guest.log(name, line)
        )

    # -- units

    def find_unit(self, name: str) -> Unit | None:
        """The unit of that name, read from its files."""
        name = _full(name)
        paths = [f"{directory}/{name}" for directory in _DIRECTORIES]
        path = next((path for path in paths if self.guest.is_file(path)), "")
        if not path:
            return None
        dropins = sorted(
            {
                posixpath.basename(dropin): dropin
                for directory in reversed(_DIRECTORIES)
                for dropin in self.guest.list_under(f"{directory}/{name}.d")
                if dropin.endswith(".conf")
            }.items()
        )
        texts = map(self.guest.read_text, [path, *(dropin for _, dropin in dropins)])
        return parse_unit(name, *texts, hostname=self.guest.hostname)

    @property
    def enabled(self) -> set[str]:
        """Names of the units that start at boot; kept on the disk, as symlinks are."""
        found: set[str] = self.guest.hardware.root.state.setdefault("enabled units", set())
        return found

    def is_active(self, name: str) -> bool:
        service = self._services.get(_full(name))
        return service is not None and service.state == "active"

    # -- start and stop

    async def boot(self) -> None:
        """Start what is enabled, all at once, each behind the units it names in After=."""
        for name in sorted(self.enabled):
            if self.find_unit(name) is not None:
                self.guest.spawn(self.start(name), f"start {name}")

    async def start(self, name: str, *, wait: bool = True) -> int:
        """Start a unit; 0 once it is up, else systemctl's exit code. With `wait` false, do not wait for it."""
        name = _full(name)
        unit = self.find_unit(name)
        if unit is None:
            if name.endswith(_ALWAYS_REACHED) or name in _IMAGE_SERVICES:
                return 0
            self.guest.console(f"Failed to start {name}: Unit {name} not found.")
            return 5
        service = self._services.get(name)
        if service is None or service.task.done():
            if service is not None and service.state == "active":
                return 0  # a oneshot that remains after its end
            service = self._launch(unit)
        return await asyncio.shield(service.started) if wait else 0

    def _launch(self, unit: Unit) -> _Service:
        service = self._services[unit.name] = _Service(unit, asyncio.get_running_loop().create_future())
        service.task = self.guest.spawn(self._run_service(service), unit.name)
        return service

    async def stop(self, name: str) -> int:
        service = self._services.get(_full(name))
        if service is not None and not service.task.done():
            service.task.cancel()
            await asyncio.wait([service.task])
        if service is not None:
            service.state = "inactive"
        return 0

    async def _run_service(self, service: _Service) -> None:
        unit = service.unit
        try:
            await self._wait_for_dependencies(unit)
            while True:
                code = await self._run_once(service)
                if code == 0 and unit.value("Service", "Type") == "oneshot":
                    remains = unit.value("Service", "RemainAfterExit").lower() in ("yes", "true", "1", "on")
                    service.state = "active" if remains else "inactive"
                    service.set_started(0)
                    return
                service.state, service.code = "failed" if code else "inactive", code
                if code and not service.started.done():
                    self.guest.console(
                        f"Job for {unit.name} failed because the control process exited with error code."
                    )
                service.set_started(code and 1)
                again = unit.value("Service", "Restart", "no")
                if again != "always" and not (again in ("on-failure", "on-abnormal") and code):
                    return
                await self.guest.sleep(_seconds(unit.value("Service", "RestartSec", "100ms")))
                service.restarts += 1
                service.state = "activating"
                unit = service.unit = self.find_unit(unit.name) or unit
        finally:
            service.set_started(1)

    async def _wait_for_dependencies(self, unit: Unit) -> None:
        for name in [*unit.names("Unit", "Requires"), *unit.names("Unit", "Wants")]:
            if not name.endswith(_ALWAYS_REACHED) and self.find_unit(name) is not None:
                self.guest.spawn(self.start(name), f"start {name}")
        before = [name for name in sorted(self.enabled - {unit.name}) if self._is_before(name, unit)]
        for name in [*unit.names("Unit", "After"), *before]:
            if name == CLOUD_FINAL:
                if not self.cloud_final.is_set():
                    self.guest.console(f"{unit.name} waits for {name}")
                await self.cloud_final.wait()
                continue
            other = self._services.get(name)
            if other is None and name in self.enabled and (found := self.find_unit(name)) is not None:
                other = self._launch(found)
            if other is not None:
                await asyncio.shield(other.started)

    def _is_before(self, name: str, unit: Unit) -> bool:
        other = self.find_unit(name)
        return other is not None and unit.name in other.names("Unit", "Before")

    async def _run_once(self, service: _Service) -> int:
        unit = service.unit
        if (failed := self._failed_condition(unit)) is not None:
            self.guest.console(f"{unit.name} was skipped because of an unmet condition check ({failed}).")
            return 0
        environment = self._environment(unit)
        if environment is None:
            return 1
        for line in unit.values("Service", "ExecStartPre"):
            if (code := await self._exec(unit, line, environment, service)) != 0:
                return code
        if unit.value("Service", "Type", "simple") not in ("notify", "oneshot"):
            self._mark_ready(service)
        for line in (*unit.values("Service", "ExecStart"), *unit.values("Service", "ExecStartPost")):
            if (code := await self._exec(unit, line, environment, service)) != 0:
                return code
        return 0

    def _mark_ready(self, service: _Service) -> None:
        service.state = "active"
        service.set_started(0)
        self.guest.console(f"Started {service.unit.value('Unit', 'Description', service.unit.name)}.")

    def _failed_condition(self, unit: Unit) -> str | None:
        for key in ("ConditionPathExists", "ConditionFileNotEmpty", "AssertPathExists"):
            for value in unit.values("Unit", key):
                negated, path = value.startswith("!"), value.lstrip("!|")
                if self.guest.exists(path) == negated:
                    return f"{key}={value}"
        return None

    def _environment(self, unit: Unit) -> dict[str, str] | None:
        """The variables of a unit; None when a file that it requires is missing."""
        words = [word for value in unit.values("Service", "Environment") for word in _split(value)]
        found = {key: value for key, _, value in (word.partition("=") for word in words)}
        for value in unit.values("Service", "EnvironmentFile"):
            path = value.lstrip("-")
            if not (value.startswith("-") or self.guest.is_file(path)):
                self.guest.console(
                    f"{unit.name}: Failed to load environment files: {path}: No such file or directory"
                )
                return None
            found.update(_assignments(self.guest.read_text(path)))
        return found

    async def _exec(self, unit: Unit, line: str, environment: Mapping[str, str], service: _Service) -> int:
        ignore = line.startswith("-")
        words = [_substituted(word, environment) for word in _split(line.lstrip("-@+!:"))]
        words = [word for word in words if word]
        if not words:
            return 0
        shell = self.shell(unit.name.removesuffix(".service"), environment)
        program = self._program(words[0])
        if program is None and "/" in words[0] and not self._is_executable(words[0]):
            self.guest.log(unit.name, f"Failed to locate executable {words[0]}: No such file or directory")
            return 0 if ignore else 203
        if program is not None:
            code = await program(Invocation(words, shell), lambda: self._mark_ready(service))
        else:
            code = await shell.run(words)
        if code and not ignore:
            self.guest.log(
                unit.name, f"Main process exited, code=exited, status={code}/FAILURE ({' '.join(words[:2])})"
            )
        return 0 if ignore else code

    def _is_executable(self, path: str) -> bool:
        return self.guest.is_file(path) or posixpath.basename(path) in self.commands

    def _program(self, path: str) -> ServiceProgram | None:
        """The simulated program whose binary is at `path`."""
        return self.programs.get(read_binary(self.guest.read(path) or b"")[0])

    # -- systemctl

    async def _systemctl(self, call: Invocation) -> int:
        options, words = parse_options(call.argv[1:], ("p", "property"))
        if not words:
            return 0
        code = 0
        for name in words[1:] or [""]:
            code = code or await self._run_verb(words[0], _full(name), options, call)
        return code

    async def _service_command(self, call: Invocation) -> int:
        if len(call.argv) < 3:
            return 1
        return await self._run_verb(call.argv[2], _full(call.argv[1]), {}, call)

    async def _run_verb(self, verb: str, name: str, options: Mapping[str, str], call: Invocation) -> int:
        wait = "no-block" not in options
        match verb:
            case "daemon-reload" | "daemon-reexec" | "reset-failed" | "preset" | "unmask":
                return 0
            case "start":
                return self._started(
                    name, await call.shell.within_deadline(self.start(name, wait=wait)), call
                )
            case "restart" if name == "systemd-sysctl.service":
                apply_sysctl_files(self.guest)
                return 0
            case "try-restart" if not self.is_active(name):
                return 0
            case "restart" | "reload-or-restart" | "try-restart":
                await self.stop(name)
                self._services.pop(name, None)
                return self._started(
                    name, await call.shell.within_deadline(self.start(name, wait=wait)), call
                )
            case "stop":
                return await self.stop(name)
            case "enable" | "reenable":
                if name in _IMAGE_SERVICES:
                    return 0
                if self.find_unit(name) is None:
                    self.guest.console(f"Failed to enable unit: Unit file {name} does not exist.")
                    return 1
                self.enabled.add(name)
                return await self.start(name, wait=wait) if "now" in options else 0
            case "disable" | "mask":
                self.enabled.discard(name)
                return await self.stop(name) if "now" in options else 0
            case "is-active":
                if not options.keys() & {"q", "quiet"}:
                    call.print(self._properties(name)["ActiveState"])
                return 0 if self.is_active(name) else 3
            case "show" if options.keys() & {"p", "property"}:
                self._show(name, options, call)
                return 0
            case "is-enabled":
                return 0 if name in self.enabled else 1
            case "status" | "show" | "cat" | "list-units":
                return 0 if not name or self.find_unit(name) is not None else 4
            case "poweroff" | "halt" | "reboot":
                self.guest.request_shutdown(verb)
                return 0
        if verb not in _UNSIMULATED_VERBS:
            self.guest.console(f"Unknown command verb {verb}.")
            return 1
        self.guest.console(f"not simulated: systemctl {verb} {name}")
        return 0

    def _started(self, name: str, code: int, call: Invocation) -> int:
        """systemctl's exit code for a job, with what it says of one that failed."""
        if code == 5:
            call.streams.err += f"Failed to start {name}: Unit {name} not found.\n".encode()
        elif code:
            call.streams.err += (
                f"Job for {name} failed because the control process exited with error code.\n"
                f'See "systemctl status {name}" and "journalctl -xeu {name}" for details.\n'
            ).encode()
        return code

    def _properties(self, name: str) -> dict[str, str]:
        service = self._services.get(name)
        if service is None:
            state, restarts, code = "inactive", 0, 0
        else:
            state, restarts, code = service.state, service.restarts, service.code
        sub = {"active": "running", "inactive": "dead", "activating": "start"}.get(state, state)
        return {
            "Id": name,
            "LoadState": "loaded" if self.find_unit(name) is not None else "not-found",
            "ActiveState": state,
            "SubState": sub,
            "Result": "exit-code" if code else "success",
            "ExecMainStatus": str(code),
            "NRestarts": str(restarts),
            "UnitFileState": "enabled" if name in self.enabled else "disabled",
        }

    def _show(self, name: str, options: Mapping[str, str], call: Invocation) -> None:
        found = self._properties(name)
        wanted = (options.get("p") or options.get("property") or "").split(",")
        for key in wanted:
            if key in found:
                call.print(found[key] if "value" in options else f"{key}={found[key]}")


_OTHER_VERBS = (
    "list-unit-files list-dependencies list-timers get-default set-default isolate kill edit link "
    "reload revert set-property add-wants add-requires help show-environment set-environment clean "
    "freeze thaw"
)
_UNSIMULATED_VERBS = frozenset(_OTHER_VERBS.split())


def _full(name: str) -> str:
    return name if not name or "." in posixpath.basename(name) else f"{name}.service"


def _split(line: str) -> list[str]:
    try:
        return shlex.split(line)
    except ValueError:
        return line.split()


def _substituted(word: str, environment: Mapping[str, str]) -> str:
    if word.startswith("${") and word.endswith("}"):
        return environment.get(word[2:-1], "")
    if word.startswith("$") and word[1:].isidentifier():
        return environment.get(word[1:], "")
    return word


def _assignments(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for line in text.splitlines():
        line = line.strip()
        if not line or line[0] in "#;" or "=" not in line:
            continue
        key, _, value = line.partition("=")
        value = value.strip()
        if len(value) > 1 and value[0] == value[-1] and value[0] in "'\"":
            value = value[1:-1]
        found[key.strip().removeprefix("export ")] = value
    return found


def _seconds(text: str) -> float:
    found = re.fullmatch(r"(\d+\.?\d*)\s*(ms|s|min|h|)", text)
    return float(found[1]) * {"ms": 0.001, "min": 60, "h": 3600}.get(found[2], 1) if found else 0.1
