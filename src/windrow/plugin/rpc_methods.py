"""The RPC methods: which of the driver's methods answers each, and the error text of its failure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from threading import Lock
from typing import TYPE_CHECKING, Any

from windrow.nodedriver.options import DRIVER, OPTIONS, Option
from windrow.plugin.rpc_server import CallFailed, MethodResult
from windrow.protocols import dockermachine as wire
from windrow.protocols.gob import BadGob, Interface, fits
from windrow.protocols.netrpc import ill_formed, no_method, no_service

if TYPE_CHECKING:
    from windrow.plugin.driver import Driver

    GetDriver = Callable[[], Driver]

_NOTHING: Mapping[str, Any] = {}

Method = Callable[["GetDriver", Any], Any]


def _setter(set_value: Callable[[Driver, Any], None]) -> Method:
    def method(get_driver: GetDriver, argument: Any) -> Any:
        set_value(get_driver(), argument)
        return _NOTHING

    return method


def _command(command: Callable[[Driver], None]) -> Method:
    return _setter(lambda driver, argument: command(driver))


def _query(query: Callable[[Driver], Any]) -> Method:
    return lambda get_driver, argument: query(get_driver())


def _same(answer: Callable[[], Any]) -> Method:
    """A query whose answer is the same for every machine, so that no driver is made for it."""
    return lambda get_driver, argument: answer()


EXTENSIONS = (wire.REPLACE_USER_DATA, wire.GET_VM_STATUS, wire.LIST_EXTENSIONS)

METHODS: Mapping[str, Method] = {
    "GetVersion": _same(lambda: wire.API_VERSION),
    "Heartbeat": _same(lambda: _NOTHING),
    "Close": _same(lambda: _NOTHING),
    "SetConfigRaw": _setter(lambda driver, argument: driver.set_config_raw(argument)),
    "GetConfigRaw": _query(lambda driver: driver.get_config_raw()),
    "GetCreateFlags": _same(lambda: write_flags(OPTIONS)),
    "SetConfigFromFlags": _setter(
        lambda driver, argument: driver.set_config_from_flags(wire.read_options(argument))
    ),
    "DriverName": _same(lambda: DRIVER),
    "GetMachineName": _query(lambda driver: driver.machine_name()),
    "GetIP": _query(lambda driver: driver.get_ip()),
    "GetIPv6": _query(lambda driver: driver.get_ipv6()),
    "GetSSHHostname": _query(lambda driver: driver.get_ip()),
    "GetSSHKeyPath": _query(lambda driver: driver.ssh_access().ssh_key_path),
    "GetSSHUsername": _query(lambda driver: driver.ssh_access().ssh_user),
    "GetSSHPort": _query(lambda driver: driver.ssh_access().ssh_port),
    "GetURL": _query(lambda driver: driver.get_url()),
    "GetState": _query(lambda driver: driver.get_state()),
    "PreCreateCheck": _command(lambda driver: driver.pre_create_check()),
    "Create": _command(lambda driver: driver.create()),
    "Remove": _command(lambda driver: driver.remove()),
    "Start": _command(lambda driver: driver.start()),
    "Stop": _command(lambda driver: driver.stop()),
    "Restart": _command(lambda driver: driver.restart()),
    "Kill": _command(lambda driver: driver.kill()),
    wire.REPLACE_USER_DATA: lambda get_driver, argument: get_driver().replace_user_data(argument),
    wire.GET_VM_STATUS: _query(lambda driver: driver.vm_status()),
    wire.LIST_EXTENSIONS: _same(lambda: " ".join(EXTENSIONS)),
}


def write_flags(options: Iterable[Option]) -> list[Interface]:
    """The create flags on the wire, in their order."""
    return wire.write_flags(
        wire.Flag(option.type, option.flag, option.usage, option.env, option.default) for option in options
    )


class RpcMethods:
    """Answers calls for one driver. Every error becomes the text of a CallFailed."""

    def __init__(self, make_driver: GetDriver, log_defect: Callable[[str], None]) -> None:
        """`make_driver` is called once, by the first call that needs the driver: a host that asks for the flags alone
        does not wait for its modules. `log_defect` gets the text of errors that are defects of the driver."""
        self._make_driver, self._log_defect = make_driver, log_defect
        self._driver: Driver | None = None
        self._lock = Lock()

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
            return types.reply, METHODS[name](self._get_driver, argument)
        except BadGob as bad:
            raise CallFailed(str(bad)) from bad
        except BaseException as error:
            raise CallFailed(self._error_text(error, name)) from error

    def _get_driver(self) -> Driver:
        with self._lock:
            self._driver = self._driver or self._make_driver()
            return self._driver

    def _error_text(self, error: BaseException, name: str) -> str:
        from windrow.nodedriver.go_errors import error_text, is_defect

        text = error_text(error, name, self._driver.secrets() if self._driver else ())
        if is_defect(error):
            self._log_defect(text)
        return text
