"""What the program's parts log, and where it goes: to standard error, a line each.

`serve` and `emulate` run for long, so warnings belong to what they print. The other verbs say themselves what went
wrong; there, logs are for `--verbose`, which also shows traces.
"""

from __future__ import annotations

import logging

from windrow.cli.context import CliContext


class LineFormatter(logging.Formatter):
    """`12:00:05 warning: …`, without the trace."""

    def format(self, record: logging.LogRecord) -> str:
        text = f"{self.formatTime(record, '%H:%M:%S')} {record.levelname.lower()}: {record.getMessage()}"
        error = record.exc_info[1] if record.exc_info else None
        return f"{text}: {type(error).__name__}: {error}" if error is not None else text


def configure(context: CliContext, *, long_running: bool, verbose: bool) -> None:
    """Send the logs of this process where they belong. `lasting` is a verb that runs until it is ended."""
    handler: logging.Handler = (
        logging.StreamHandler(context.err) if long_running or verbose else logging.NullHandler()
    )
    if not verbose:
        handler.setFormatter(LineFormatter())
    logging.basicConfig(level=logging.INFO if verbose else logging.WARNING, handlers=[handler], force=True)
