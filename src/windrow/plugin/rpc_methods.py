"""The RPC methods: which of the driver's methods answers each, and the error text of its failure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from windrow.nodedriver.options import DRIVER, OPTIONS, Option
from windrow.plugin.driver import Driver
from windrow.plugin.rpc_server import CallFailed, MethodResult
from windrow.protocols import dockermachine as wire
from windrow.protocols.gob import BadGob, Interface, fits
from windrow.protocols.netrpc import ill_formed, no_method, no_service

_NOTHING: Mapping[str, Any] = {}

Method = Callable[[Driver, Any], Any]


def _setter(set_value: Callable[[Driver, Any], None]) -> Method:
    def method(driver: Driver, argument: Any) -> Any:
        set_value(driver, argument)
        return _NOTHING

    return method


def _command(command: Callable[[Driver], None]) -> Method:
    return _setter(lambda driver, argument: command(driver))


def _query(query: Callable[[Driver], Any]) -> Method:
    return lambda driver, argument: query(driver)


EXTENSIONS = (wire.REPLACE_USER_DATA, wire.GET_VM_STATUS, wire.LIST_EXTENSIONS)

METHODS: Mapping[str, Method] = {
    "GetVersion": _query(lambda driver: wire.API_VERSION),
    "Heartbeat": _query(lambda driver: _NOTHING),
    "Close": _query(lambda driver: _NOTHING),
    "SetConfigRaw": _setter(Driver.set_config_raw),
    "GetConfigRaw": _query(Driver.get_config_raw),
    "GetCreateFlags": _query(lambda driver: write_flags(OPTIONS)),
    "SetConfigFromFlags": _setter(
        lambda driver, argument: driver.set_config_from_flags(wire.read_options(argument))
    ),
    "DriverName": _query(lambda driver: DRIVER),
    "GetMachineName": _query(Driver.machine_name),
    "GetIP": _query(Driver.get_ip),
    "GetIPv6": _query(Driver.get_ipv6),
    "GetSSHHostname": _query(Driver.get_ip),
    "GetSSHKeyPath": _query(lambda driver: driver.ssh_access().ssh_key_path),
    "GetSSHUsername": _query(lambda driver: driver.ssh_access().ssh_user),
    "GetSSHPort": _query(lambda driver: driver.ssh_access().ssh_port),
    "GetURL": _query(Driver.get_url),
    "GetState": _query(Driver.get_state),
    "PreCreateCheck": _command(Driver.pre_create_check),
    "Create": _command(Driver.create),
    "Remove": _command(Driver.remove),
    "Start": _command(Driver.start),
    "Stop": _command(Driver.stop),
    "Restart": _command(Driver.restart),
    "Kill": _command(Driver.kill),
    wire.REPLACE_USER_DATA: lambda driver, argument: driver.replace_user_data(argument),
    wire.GET_VM_STATUS: _query(Driver.vm_status),
    wire.LIST_EXTENSIONS: _query(lambda driver: " ".join(EXTENSIONS)),
}


def write_flags(options: Iterable[Option]) -> list[Interface]:
    """The create flags on the wire, in their order."""
    return wire.write_flags(
        wire.Flag(option.type, option.flag, option.usage, option.env, option.default) for option in options
    )


class RpcMethods:
    """Answers calls for one driver. Every error becomes the text of a CallFailed."""

    def __init__(self, driver: Driver, log_defect: Callable[[str], None]) -> None:
        """`log_defect` gets the text of errors that are defects of the driver."""
        self._driver, self._log_defect = driver, log_defect

    def __call__(self, called: str, argument: Any) -> MethodResult:
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
            raise CallFailed(self._error_text(error, name)) from error

    def _error_text(self, error: BaseException, name: str) -> str:
        from windrow.nodedriver.go_errors import error_text, is_defect

        text = error_text(error, name, self._driver.secrets())
        if is_defect(error):
            self._log_defect(text)
        return text
