"""Exit codes. Scripts rely on them, so they never change their meaning; docs/reference/exit-codes.md lists them."""

from __future__ import annotations

OK = 0
FAILED = 1  # tried without success: a check failed, a machine failed, or a defect of Windrow
DIFFERENCES = 1  # of `plan`, as of kubectl diff: there are changes
USAGE = 2  # the command line could not be understood
REFUSED = 3  # the input is not acceptable; nothing was changed
NOT_FOUND = 4  # the named object does not exist
UNREACHABLE = 5  # a server could not be reached, or did not accept the credential
TIMED_OUT = 6  # --timeout passed first; the work goes on
UNDECIDED = 7  # `plan` failed, where 1 would say that there are changes
INTERRUPTED = 130  # Ctrl-C; for demo also SIGTERM or SIGHUP

MEANING = {
    OK: "done, and every check passed",
    FAILED: "tried without success, or a check failed; of `plan`, that there are changes and none is refused, as of `kubectl diff`",
    USAGE: "the command line could not be understood",
    REFUSED: "the input was refused; nothing was changed",
    NOT_FOUND: "the named object does not exist",
    UNREACHABLE: "a server could not be reached, or refused the credential",
    TIMED_OUT: "the time given with --timeout passed first",
    UNDECIDED: "`plan` failed, so that it is not known whether there are changes",
    INTERRUPTED: "interrupted by Ctrl-C before it was done, `demo` also by SIGTERM or SIGHUP (`serve` and `emulate` "
    "end so with 0; `demo --keep`, once it has played, with 0 or 1, by its checks)",
}
