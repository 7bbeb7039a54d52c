"""Log records with the objects they are about as fields, one line each, as klog writes them, or as JSON.

    log = with_values(logging.getLogger(__name__), cluster="default/prod")
    log.info("created", machine="prod-workers-x7k2p")
    # 12:00:05 info: created cluster="default/prod" machine="prod-workers-x7k2p"

Fields are named after kinds in small letters (`cluster`, `machine`, `virtualmachine`, `node`, `service`), and their
values are names as kubectl takes them, `namespace/name` where there is a namespace.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, MutableMapping
from datetime import UTC, datetime
from typing import Any

from windrow.core.text import collapse_whitespace

_OPTIONS = frozenset({"exc_info", "extra", "stack_info", "stacklevel"})


class FieldLogger(logging.LoggerAdapter[logging.Logger]):
    """A logger whose methods take fields as keywords; `fields` are in every record."""

    def __init__(self, logger: logging.Logger, fields: dict[str, object]) -> None:
        super().__init__(logger, {})
        self.fields = fields

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        options = {key: value for key, value in kwargs.items() if key in _OPTIONS}
        fields = {**self.fields, **{key: value for key, value in kwargs.items() if key not in _OPTIONS}}
        return msg, {**options, "extra": {**options.get("extra", {}), "fields": fields}}

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        if self.isEnabledFor(level):
            text, options = self.process(msg, kwargs)
            self.logger.log(level, text, *args, **options)


def with_values(logger: logging.Logger | FieldLogger, **fields: object) -> FieldLogger:
    """A logger that writes `fields` with every record, those of `logger` first."""
    if isinstance(logger, FieldLogger):
        return FieldLogger(logger.logger, {**logger.fields, **fields})
    return FieldLogger(logger, fields)


class LineFormatter(logging.Formatter):
    """`<time> <level>: <message> key="value" …`, on one line; the traceback follows where `tracebacks` is set."""

    def __init__(self, time: Callable[[], str] | None = None, *, tracebacks: bool = False) -> None:
        super().__init__()
        self._time = time
        self._tracebacks = tracebacks

    def format(self, record: logging.LogRecord) -> str:
        error = record.exc_info[1] if record.exc_info else None
        text = record.getMessage()
        if error is not None:
            text += f": {type(error).__name__}: {error}"
        fields = "".join(f" {key}={_quoted(value)}" for key, value in getattr(record, "fields", {}).items())
        time = self._time() if self._time else self.formatTime(record, "%H:%M:%S")
        line = f"{time} {record.levelname.lower()}: {collapse_whitespace(text)}{fields}"
        if self._tracebacks and record.exc_info:
            line += f"\n{self.formatException(record.exc_info)}"
        return line


class JsonFormatter(logging.Formatter):
    """One JSON object in ASCII on one line: `time` (RFC 3339, UTC), `level`, `logger`, `msg`, the fields of the record under their names,
    and for an error `error` and `stack`.

    `namespace` is that of the first field whose value is `namespace/name`, where no field of that name says another. A field that
    has one of those names has `field_` before it. A text has at most MAX_TEXT characters.
    """

    def __init__(self, *, tracebacks: bool = True) -> None:
        super().__init__()
        self._tracebacks = tracebacks

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")[:-6] + "Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "msg": _bounded(record.getMessage()),
        }
        fields = getattr(record, "fields", {})
        for key, value in fields.items():
            line[f"field_{key}" if key in _OWN_KEYS else str(key)] = _plain(value)
        if "namespace" not in line and (namespace := _namespace_of(fields)):
            line["namespace"] = namespace
        if record.exc_info and (error := record.exc_info[1]) is not None:
            line["error"] = _bounded(f"{type(error).__name__}: {error}")
            if self._tracebacks:
                line["stack"] = _bounded(self.formatException(record.exc_info))
        return json.dumps(line)


MAX_TEXT = 16 * 1024
_OWN_KEYS = frozenset({"time", "level", "logger", "msg", "error", "stack"})


def _plain(value: object) -> object:
    return value if isinstance(value, bool | int) else _bounded(str(value))


def _bounded(text: str) -> str:
    return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}…"


def _namespace_of(fields: Mapping[str, object]) -> str:
    values = (str(fields.get(key) or "") for key in ("cluster", "machine"))
    return next((value.partition("/")[0] for value in values if "/" in value), "")


def new_formatter(
    format: str, time: Callable[[], str] | None = None, *, tracebacks: bool = False
) -> logging.Formatter:
    """The formatter for `text` or `json`."""
    return JsonFormatter() if format == "json" else LineFormatter(time, tracebacks=tracebacks)


LOG_FORMATS = ("text", "json")


def _quoted(value: object) -> str:
    text = collapse_whitespace(value).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{text}"'


class _LineHandler(logging.Handler):
    def __init__(self, write: Callable[[str], None]) -> None:
        super().__init__()
        self._write = write
        self.setFormatter(LineFormatter(lambda: ""))

    def emit(self, record: logging.LogRecord) -> None:
        self._write(self.format(record).strip())


def line_logger(name: str, write: Callable[[str], None]) -> logging.Logger:
    """A logger apart from those of the process, for programs of which several run in one: its records from INFO on go
    to `write` as lines without the time."""
    log = logging.Logger(name, logging.INFO)
    log.addHandler(_LineHandler(write))
    return log
