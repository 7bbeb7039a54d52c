"""Which version a cluster may go to: no lower one, none of another distribution, and no minor may be skipped.

Nothing in RKE2 or K3s refuses a step of two minors, or one back: it is refused here, with the way that there is.
"""

from __future__ import annotations

from collections.abc import Iterable

from windrow.core.formats.version import NotVersion, Version
from windrow.machines.port import Problem

VERSION = "spec.kubernetesVersion"


def check_step(wanted: str, running: Iterable[str]) -> Problem | None:
    """Why machines that run these versions may not go to the wanted one; None where they may, and where that cannot be read,
    which is a problem of the Cluster."""
    to = read_version(wanted)
    versions = sorted(filter(None, map(read_version, set(running))))
    if to is None or not versions:
        return None
    oldest, newest = versions[0], versions[-1]
    if to < newest:
        return Problem(
            f"{VERSION} is {to}, lower than {newest}, which the cluster runs",
            f"Kubernetes cannot go back in place: set it to {newest} or later; the way back is a restore of a snapshot that was "
            f"made with v{to.major}.{to.minor}",
            VERSION,
        )
    skipped = range(oldest.minor + 1, to.minor) if to.major == oldest.major else range(0)
    if skipped or to.major != oldest.major:
        steps = "".join(f"a release of v{to.major}.{minor}, then " for minor in skipped)
        return Problem(
            f"{VERSION} is {to}, and the cluster runs {oldest}: no minor may be skipped",
            f"go there in steps: {steps}{to}, each once all machines run the one before it",
            VERSION,
        )
    return None


def is_newer(running: str, recorded: str) -> bool:
    """Whether a version that a guest reports is one of the same distribution, and newer."""
    now, then = read_version(running), read_version(recorded)
    if now is None or then is None or str(now) != running or not now.distribution:
        return False
    return now.distribution == then.distribution and then < now


def read_version(text: str) -> Version | None:
    try:
        return Version.parse(text)
    except NotVersion:
        return None
