"""Loggers apart from those of the process, for programs of which several run in one."""

from __future__ import annotations

import logging
from collections.abc import Callable

from windrow.core.logs import LineFormatter


class LineHandler(logging.Handler):
    """Passes each record to `write` as one line."""

    def __init__(self, write: Callable[[str], None]) -> None:
        super().__init__()
        self._write = write
        self.setFormatter(LineFormatter(lambda: ""))

    def emit(self, record: logging.LogRecord) -> None:
        self._write(self.format(record).strip())


def line_logger(write: Callable[[str], None]) -> logging.Logger:
    """A logger whose lines from INFO on go to `write`, without the time."""
    log = logging.Logger("harvester-cloud-provider", logging.INFO)
    log.addHandler(LineHandler(write))
    return log
