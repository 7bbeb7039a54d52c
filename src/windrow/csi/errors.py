"""The errors of the CSI driver: what is raised by the ports `Volumes` and `Mounts`, and by the services over them.

Each error derives from one of the kinds here that `server.STATUS_CODES` gives a code; what a caller does next depends on the
kind alone. A side-car repeats a call after Aborted and Unavailable, and takes most others as final until it is asked anew.
A message names objects and fields, and never holds a secret.
"""

from __future__ import annotations

from windrow.core.errors import UserError

# How much of an error's text is logged and sent: gRPC carries it in a header.
MAX_MESSAGE = 2000


def printable(text: str) -> str:
    """The beginning of a text from outside, for a log: what steers a terminal, or ends a line, is escaped."""
    return "".join(one if one.isprintable() else ascii(one)[1:-1] for one in text[:MAX_MESSAGE])[:MAX_MESSAGE]


class CsiError(UserError):
    """The base. Raised as such it is a defect of ours."""


class InvalidArgument(CsiError):
    """A field of the request is missing, malformed or asks for something unsupported; repeating it changes nothing."""

    def __init__(self, field: str, problem: str, hint: str = "correct the request") -> None:
        super().__init__(f"{field}: {problem}", hint)
        self.field = field


class AlreadyExists(CsiError):
    """What the request names exists, and is not what the request asks for."""


class OutOfRange(CsiError):
    """No size can satisfy the request."""


class NotFound(CsiError):
    """What the request names is not there."""


class FailedPrecondition(CsiError):
    """The state of the volume, its node or Harvester does not allow it; that has to change first."""


class ResourceExhausted(CsiError):
    """No room: on the node, in a quota, or on Harvester."""


class Aborted(CsiError):
    """Work on the same object is under way; the same call is repeated after a moment."""


class Unavailable(CsiError):
    """Harvester or the device cannot be reached now; the same call is repeated with back-off."""


class Unimplemented(CsiError):
    """The driver does not offer this, and says so in its capabilities."""


class Internal(CsiError):
    """A tool or Harvester failed in a way that has no better name; the message has its words."""
