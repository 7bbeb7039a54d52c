"""Loggers of the cloud provider: lines about API objects, and loggers whose lines go to a function."""

from __future__ import annotations

import logging
from collections.abc import Callable, MutableMapping
from typing import Any

PROGRAM = "harvester-cloud-provider"


class ObjectLog(logging.LoggerAdapter[logging.Logger]):
    """Lines about one API object: kind and name come first, and are the field `object` of the record."""

    def __init__(self, log: logging.Logger, kind: str, name: str) -> None:
        super().__init__(log, {"object": f"{kind} {name}"})

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        return f"{(self.extra or {})['object']}: {msg}", {**kwargs, "extra": self.extra}


class LineHandler(logging.Handler):
    """Passes each record to `write` as one line, with its level where that is a warning or worse."""

    def __init__(self, write: Callable[[str], None]) -> None:
        super().__init__()
        self._write = write

    def emit(self, record: logging.LogRecord) -> None:
        self._write(render_line(record))


def render_line(record: logging.LogRecord) -> str:
    """The message on one line, with `warning` or `error` before it, and its exception behind it; "FATAL" says so itself."""
    text = record.getMessage()
    if logging.WARNING <= record.levelno < logging.CRITICAL:
        text = f"{record.levelname.lower()}: {text}"
    error = record.exc_info[1] if record.exc_info else None
    if error is not None:
        text += f": {type(error).__name__}: {error}"
    return " ".join(text.split())


def line_logger(write: Callable[[str], None]) -> logging.Logger:
    """A logger of its own, apart from those of the process: several programs may run in one."""
    log = logging.Logger(PROGRAM, logging.INFO)
    log.addHandler(LineHandler(write))
    return log
