"""The RPC methods: which of the driver's methods answers each, and what its failure sounds like."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from windrow.nodedriver.options import Option
from windrow.plugin.driver import Driver
from windrow.plugin.service import Answer, CallFailed
from windrow.protocols import dockermachine as wire
from windrow.protocols.gob import BadGob, Interface, fits
from windrow.protocols.netrpc import ill_formed, no_method, no_service

_NOTHING: Mapping[str, Any] = {}

Method = Callable[[Driver, Any], Any]


def _tell(order: Callable[[Driver], None]) -> Method:
    def method(driver: Driver, argument: Any) -> Any:
        order(driver)
        return _NOTHING

    return method


def _ask(question: Callable[[Driver], Any]) -> Method:
    return lambda driver, argument: question(driver)


def _set_config_raw(driver: Driver, argument: Any) -> Any:
    driver.set_config_raw(argument)
    return _NOTHING


def _set_config_from_flags(driver: Driver, argument: Any) -> Any:
    driver.set_config_from_flags(wire.read_options(argument))
    return _NOTHING


EXTENSIONS = (wire.REPLACE_USER_DATA, wire.GET_VM_STATUS, wire.LIST_EXTENSIONS)

METHODS: Mapping[str, Method] = {
    "GetVersion": _ask(lambda driver: wire.API_VERSION),
    "Heartbeat": _ask(lambda driver: _NOTHING),
    "Close": _ask(lambda driver: _NOTHING),
    "SetConfigRaw": _set_config_raw,
    "GetConfigRaw": _ask(Driver.get_config_raw),
    "GetCreateFlags": _ask(lambda driver: write_flags(driver.create_flags())),
    "SetConfigFromFlags": _set_config_from_flags,
    "DriverName": _ask(Driver.driver_name),
    "GetMachineName": _ask(Driver.machine_name),
    "GetIP": _ask(Driver.ip),
    "GetIPv6": _ask(Driver.ipv6),
    "GetSSHHostname": _ask(Driver.ip),
    "GetSSHKeyPath": _ask(Driver.ssh_key_path),
    "GetSSHUsername": _ask(Driver.ssh_user),
    "GetSSHPort": _ask(Driver.ssh_port),
    "GetURL": _ask(Driver.url),
    "GetState": _ask(Driver.state),
    "PreCreateCheck": _tell(Driver.pre_create_check),
    "Create": _tell(Driver.create),
    "Remove": _tell(Driver.remove),
    "Start": _tell(Driver.start),
    "Stop": _tell(Driver.stop),
    "Restart": _tell(Driver.restart),
    "Kill": _tell(Driver.kill),
    wire.REPLACE_USER_DATA: lambda driver, argument: driver.rewrite(argument),
    wire.GET_VM_STATUS: _ask(Driver.look),
    wire.LIST_EXTENSIONS: _ask(lambda driver: " ".join(EXTENSIONS)),
}


def write_flags(options: Iterable[Option]) -> list[Interface]:
    """The create flags on the wire, in their order."""
    return wire.write_flags(
        wire.Flag(option.type, option.flag, option.usage, option.env, option.default) for option in options
    )


class Methods:
    """Answers calls about one driver. Whatever goes wrong becomes the text of a CallFailed."""

    def __init__(self, driver: Driver, confess: Callable[[str], None]) -> None:
        """`confess` hears of failures that are faults of ours."""
        self._driver, self._confess = driver, confess

    def __call__(self, called: str, argument: Any) -> Answer:
        service, dot, name = called.rpartition(".")
        if not dot:
            raise CallFailed(ill_formed(called))
        if service not in (wire.SERVICE, wire.LEGACY_SERVICE):
            raise CallFailed(no_service(called))
        if name not in METHODS:
            raise CallFailed(no_method(called))
        types = wire.METHODS[name]
        if types.argument is not wire.EMPTY and not fits(types.argument, argument):
            raise CallFailed(f"the argument of {name} is of the wrong type")
        try:
            return types.reply, METHODS[name](self._driver, argument)
        except BadGob as bad:
            raise CallFailed(str(bad)) from bad
        except BaseException as error:
            raise CallFailed(self._told(error, name)) from error

    def _told(self, error: BaseException, name: str) -> str:
        from windrow.nodedriver.go_words import error_text, is_fault_of_ours

        text = error_text(error, name, self._driver.secrets())
        if is_fault_of_ours(error):
            self._confess(text)
        return text
