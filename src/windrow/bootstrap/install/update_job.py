"""The Job in the guest that changes one machine in place: no SSH, no agent.

The Job's pod is bound to one Node by name, so that it runs on a cordoned one, too, and without a scheduler. It has no image
of its own: the sandbox image of the release, which every machine has or no pod would run, holds the container, and the
shell is the machine's, mounted into it. So a place without internet needs nothing more than it has.

The files and the script travel in a Secret that the Job owns. They are copied to /run, which is memory, and the script runs
in the machine's root: it writes what differs, installs another release through the install unit, restarts the service and
waits for it. A file that is the same is left alone, and a script that finds all files the same restarts nothing. What is
left to do after it was interrupted is noted in `PENDING` before the first file is written.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from shlex import quote
from typing import Any

from windrow.bootstrap.cloud_config import File
from windrow.bootstrap.install.unit import SERVICE, SITE_ENVIRONMENT, STATE, Installer
from windrow.bootstrap.spec import InvalidBootstrapSpec
from windrow.kubernetes.objects import Raw, new_object
from windrow.kubernetes.resources import JOB, SECRET

NAMESPACE = "kube-system"
# On the Job, its pod and its Secret: the uid of the Machine.
MACHINE_LABEL = "windrow.io/update-machine"
_SANDBOX = "rancher/mirrored-pause"
SANDBOX_IMAGE = f"{_SANDBOX}:3.6"
_TAG = re.compile(r"[0-9]{1,4}(\.[0-9]{1,4}){0,3}")
SCRIPT = "apply.sh"
MOUNT, WORKSPACE = "/windrow", "/run/windrow-update"
PENDING = "/var/lib/windrow/restart-pending"
FOLLOWED = "/var/lib/windrow/restart-request"
# What a container needs to run the machine's own shell.
HOST_DIRECTORIES = ("/usr", "/bin", "/lib", "/lib64")
# Of the whole script; each wait is bounded by it.
INSTALL_TIMEOUT_S, START_TIMEOUT_S = 900, 600
# Failures of the install unit, which tries again by itself, after which the script gives up.
INSTALL_ATTEMPTS = 3
LOG_LINES = 10
# What a release and its images take beside those that run, and how long its first image may take to be pulled: one that only
# takes longer is pulled when the service starts.
LEAST_FREE_KIB = {"rke2": 3 << 20, "k3s": 1 << 20}
_RUNTIMES = {"rke2": "rancher/rke2-runtime"}
PULL_TIMEOUT_S = 240
# From its creation, also where its pod never runs: longer than both waits together, no longer than its turn waits for it.
LIFETIME_S = 1800
KEPT_S = 3600  # of a Job that ended
MAX_SECRET = 900_000  # bytes; the API server takes a megabyte with its names


@dataclass(frozen=True, slots=True)
class UpdateJob:
    """What one machine is changed to. `restarts` says whether its service may be restarted for it; without that only the
    files are written. Those in `applied_directory` need no restart: the server applies them by itself. With a `request` the service is
    restarted once, whatever its files are; with `new_keys` certificates are made anew meanwhile, those of `services` or all. One that
    `only_asks` has the script up to its first file: whether the machine can take the release."""

    name: str
    node: str
    machine_uid: str
    version: str
    service: str
    installer: Installer
    files: Sequence[File] = field(repr=False)
    applied_directory: str
    restarts: bool = True
    request: str = ""
    only_asks: bool = False
    new_keys: bool = False
    services: tuple[str, ...] = ()
    data_directory: str = ""
    registry: str = ""  # system-default-registry
    image: str = SANDBOX_IMAGE


def render_job(job: UpdateJob) -> Raw:
    """The Job. It holds nothing that is secret."""
    labels = {MACHINE_LABEL: job.machine_uid}
    command = (
        f"mkdir -p /host{WORKSPACE} && chmod 0700 /host{WORKSPACE} && cp {MOUNT}/* /host{WORKSPACE}/ && "
        f"exec chroot /host /bin/sh {WORKSPACE}/{SCRIPT}"
    )
    container = {
        "name": "update",
        "image": job.image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["/bin/sh", "-c", command],
        "env": [{"name": "PATH", "value": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}],
        "securityContext": {"privileged": True, "runAsUser": 0},
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [
            {"name": "host", "mountPath": "/host", "mountPropagation": "HostToContainer"},
            *({"name": path[1:], "mountPath": path, "readOnly": True} for path in HOST_DIRECTORIES),
            {"name": "files", "mountPath": MOUNT, "readOnly": True},
        ],
    }
    pod = {
        "nodeName": job.node,
        "restartPolicy": "Never",
        "hostPID": True,
        "hostNetwork": True,
        "priorityClassName": "system-node-critical",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "tolerations": [{"operator": "Exists"}],
        "containers": [container],
        "volumes": [
            {"name": "host", "hostPath": {"path": "/"}},
            *({"name": path[1:], "hostPath": {"path": path}} for path in HOST_DIRECTORIES),
            {"name": "files", "secret": {"secretName": job.name, "defaultMode": 0o400}},
        ],
    }
    return new_object(
        JOB,
        job.name,
        NAMESPACE,
        labels=labels,
        spec={
            "backoffLimit": 0,
            "activeDeadlineSeconds": LIFETIME_S,
            "ttlSecondsAfterFinished": KEPT_S,
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    )


def render_files_secret(job: UpdateJob) -> Raw:
    """The Secret with the script and the contents. Once there is the Job, that owns it."""
    data = {SCRIPT: _encode(render_script(job))}
    for number, file in enumerate(job.files):
        data[_key(number)] = file.content if file.encoding == "b64" else _encode(file.content)
    return new_object(
        SECRET,
        job.name,
        NAMESPACE,
        labels={MACHINE_LABEL: job.machine_uid},
        type="Opaque",
        data=data,
    )


def require_fitting(job: UpdateJob) -> None:
    """Raises InvalidBootstrapSpec where the files do not fit into one Secret."""
    size = sum(len(file.content.encode()) for file in job.files)
    if size > MAX_SECRET:
        raise InvalidBootstrapSpec(
            f"the files of a machine have {size} bytes together, and a Secret of the guest takes {MAX_SECRET}",
            "make additionalManifest or machineSelectorFiles smaller",
        )


def _encode(text: str) -> str:
    return b64encode(text.encode()).decode()


def _key(number: int) -> str:
    return f"file-{number:03}"


# Before any file is written: whether the node can take another release. What only the node knows is asked there: its disk, its
# registries, mirrors and proxy, and the archives that are imported before anything is pulled.
_PREFLIGHT = """\
installed=none
if [ -f {state} ]; then
  installed=$(cat {state})
fi
if [ "$installed" != {version} ]; then
  free=$(df -k --output=avail {data} 2>/dev/null | tail -n 1 || true)
  if [ "${{free:-{least}}}" -lt {least} ] 2>/dev/null; then
    echo {data}" has $free KiB free, and "{version}" needs {least}; nothing was changed: free some, or enlarge the disk" >&2
    exit 1
  fi
{images}fi
"""

_IMAGE = """\
  archives=none
  for file in {directory}/*.tar*; do
    if [ -f "$file" ]; then
      archives=there
    fi
  done
  if grep -qs {artifacts} {site}; then
    archives=there
  fi
  if [ -x {binary} ] && [ "$archives" = none ]; then
    pulled=0
    timeout {timeout} {binary}{command} --config {config} pull {image} > {log} 2>&1 || pulled=$?
    if [ "$pulled" -ne 0 ] && [ "$pulled" -ne 124 ]; then
      tail -n 2 {log} >&2
      echo {image}" cannot be pulled here; nothing was changed: give the site's registries the images, or put their archive into "{directory} >&2
      exit 1
    fi
  fi
"""

# One command a line, without functions: as the other scripts, so that what runs it may be simple.
_PUT = """\
if cmp -s {source} {path}; then
  chmod {mode} {path}
else
  {note}mkdir -p {directory}
  cp {source} {path}.windrow
  chmod {mode} {path}.windrow
  mv -f {path}.windrow {path}
  echo "wrote "{path}
fi
"""

# The request is noted before it is followed, so that a script that is run again restarts nothing twice.
_ORDER = """\
if [ "$(cat {followed} 2>/dev/null || echo none)" != {request} ]; then
  touch {pending}
  echo {request} > {followed}
fi
"""

# The keys of a service that runs are not to change under it. One that cannot be given new ones runs on with its own.
_NEW_KEYS = """\
PATH="$PATH:/usr/local/bin:/opt/{name}/bin"
export PATH
if [ "$(cat {followed} 2>/dev/null || echo none)" != {request} ]; then
  touch {pending}
  systemctl stop {service}
  if ! {name} certificate rotate{flags}; then
    rm -f {pending}
    systemctl start --no-block {service}
    echo "no certificates were made; "{service}" runs on with its own" >&2
    exit 1
  fi
  echo {request} > {followed}
fi
"""

_UNIT_CHANGED = """\
systemctl daemon-reload
"""

# The unit tries again for ever. Where the release could not be installed, nothing has been stopped: the version in the
# environment file is put back, so that the next boot does not try either.
_INSTALL = """\
installed=none
if [ -f {state} ]; then
  installed=$(cat {state})
fi
if [ "$installed" != {version} ]; then
  echo "installing "{version}
  systemctl restart --no-block {unit}
  passed=0
  while [ "$(cat {state} 2>/dev/null || echo none)" != {version} ]; do
    failures=$(systemctl show -p NRestarts --value {unit})
    if [ "${{failures:-0}}" -ge {attempts} ] || [ "$passed" -ge {timeout} ]; then
      journalctl -u {unit} -n {lines} --no-pager -o cat || true
      if [ -f {environment}.before ]; then
        cp {environment}.before {environment}
        systemctl restart --no-block {unit}
      fi
      echo {version}" was not installed; $installed runs on" >&2
      exit 1
    fi
    sleep 5
    passed=$((passed + 5))
  done
  rm -f {pending}
  sleep 2
fi
"""

_RESTART = """\
if [ -f {pending} ]; then
  echo "restarting "{service}
  timeout {timeout} systemctl restart {service} || true
  rm -f {pending}
fi
passed=0
while ! systemctl is-active --quiet {service}; do
  if [ "$passed" -ge {timeout} ]; then
    journalctl -u {service} -n {lines} --no-pager -o cat || true
    echo {service}" is not active after {timeout} s" >&2
    exit 1
  fi
  sleep 5
  passed=$((passed + 5))
done
"""


def render_script(job: UpdateJob) -> str:
    """The script that runs in the machine's root. It may be run again at any time, also where it was cut off."""
    installer, service = job.installer, job.service
    names = {
        "state": quote(STATE),
        "pending": quote(PENDING),
        "unit": SERVICE,
        "service": service,
        "version": quote(job.version),
        "environment": quote(installer.environment_file),
        "lines": LOG_LINES,
    }
    parts = ["#!/bin/sh\nset -eu\nmkdir -p /var/lib/windrow\n"]
    if job.restarts and not job.request:
        parts.append(_render_preflight(job, names))
    if job.only_asks:
        return "".join([*parts, f"rm -rf {WORKSPACE}\n"])
    parts += [_put(number, file, job) for number, file in enumerate(job.files)]
    if job.request:
        request = {"request": quote(job.request), "followed": quote(FOLLOWED), "name": installer.layout.name}
        script = _NEW_KEYS if job.new_keys else _ORDER
        parts.append(script.format(**names, **request, flags=_render_flags(job)))
    parts.append(_UNIT_CHANGED)
    if job.restarts:
        parts.append(_INSTALL.format(**names, timeout=INSTALL_TIMEOUT_S, attempts=INSTALL_ATTEMPTS))
        parts.append(_RESTART.format(**names, timeout=START_TIMEOUT_S))
    parts.append(f"rm -rf {WORKSPACE}\n")
    return "".join(parts)


def _render_preflight(job: UpdateJob, names: Mapping[str, object]) -> str:
    layout = job.installer.layout
    data = job.data_directory or f"/var/lib/rancher/{layout.name}"
    least = LEAST_FREE_KIB.get(layout.name, 0)
    images = _IMAGE.format(
        directory=quote(f"{data}/agent/images"),
        artifacts=quote(f"^INSTALL_{layout.name.upper()}_ARTIFACT_PATH=."),
        site=SITE_ENVIRONMENT,
        config=quote(f"{data}/agent/etc/crictl.yaml"),
        log=f"{WORKSPACE}/pull.log",
        timeout=PULL_TIMEOUT_S,
        **_choose_pull(job, data),
    )
    return _PREFLIGHT.format(**names, data=quote(data), least=least, images=images)


def _choose_pull(job: UpdateJob, data: str) -> Mapping[str, str]:
    """What is pulled, and with which program. A release of RKE2 is an image, which its other images are beside. Which images K3s is
    going to pull is known once it is installed: that the way to its registry is open is asked with the sandbox image, of which a
    pull asks the registry also where the machine has it."""
    layout = job.installer.layout
    if layout.name in _RUNTIMES:
        prefix = f"{job.registry}/" if job.registry else ""
        image = f"{prefix}{_RUNTIMES[layout.name]}:{job.version.replace('+', '-')}"
        return {"binary": quote(f"{data}/bin/crictl"), "command": "", "image": quote(image)}
    return {"binary": f"/usr/local/bin/{layout.name}", "command": " crictl", "image": quote(job.image)}


def _render_flags(job: UpdateJob) -> str:
    services = f" --service={','.join(job.services)}" if job.services else ""
    return services + (f" --data-dir={quote(job.data_directory)}" if job.data_directory else "")


def _put(number: int, file: File, job: UpdateJob) -> str:
    own = (job.installer.environment_file, job.installer.script)
    is_applied = file.path.startswith(f"{job.applied_directory}/")
    # What the install unit reads is no reason to restart the service, which the unit does where the version differs.
    notes = job.restarts and not is_applied and file.path not in own
    directory = file.path.rpartition("/")[0] or "/"
    note = f"touch {quote(PENDING)}\n  " if notes else ""
    if file.path == job.installer.environment_file:
        path = quote(file.path)
        note = f"if [ -f {path} ]; then\n    cp {path} {path}.before\n  fi\n  "
    return _PUT.format(
        source=f"{WORKSPACE}/{_key(number)}",
        path=quote(file.path),
        mode=file.mode,
        directory=quote(directory),
        note=note,
    )


def choose_image(node: Mapping[str, Any], registry: str = "", given: str = "") -> str:
    """The image that holds the container: `given` by the user, else the sandbox image that the Node says it has, else that of
    the distribution, from `registry` where the cluster pulls from one. A Node's own words name only the tag: the container sees the
    machine's root."""
    if given:
        return given
    trusted = {f"{place}/{_SANDBOX}" for place in (registry, "docker.io", "index.docker.io") if place}
    trusted.add(_SANDBOX)
    for image in (node.get("status") or {}).get("images") or ():
        for name in image.get("names") or ():
            path, _, tag = str(name).rpartition(":")
            if path in trusted and _TAG.fullmatch(tag):
                return str(name)
    return f"{registry}/{SANDBOX_IMAGE}" if registry else SANDBOX_IMAGE
