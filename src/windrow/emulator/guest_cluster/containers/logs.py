"""The subresource `log` of pods: what a container has printed, as its node's kubelet keeps it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from windrow.apiserver.apierrors import bad_request, not_found, status_error
from windrow.apiserver.request.info import UserInfo, query_options
from windrow.core.clock import format_time
from windrow.kubernetes.objects import Raw, nested, uid_of
from windrow.kubernetes.requests import Reply, Request
from windrow.kubernetes.resources import POD, ObjectRef

if TYPE_CHECKING:
    from windrow.emulator.guest_cluster.cluster import GuestCluster

_TEXT = "text/plain"


async def read_log(cluster: GuestCluster, request: Request, ref: ObjectRef, user: UserInfo) -> Reply:
    """The reply to a request for a pod's log. `follow` gives what there is; of earlier containers nothing is kept.
    Raises the API error."""
    if request.method != "GET":
        raise status_error(
            405, "the server does not allow this method on the requested resource", reason="MethodNotAllowed"
        )
    pod = await cluster.client().find(ref)
    if pod is None:
        raise not_found(POD, ref.name)
    options = query_options(request)
    name = _choose(pod, ref, options.get("container", ""))
    node = str(nested(pod, "spec", "nodeName", default=""))
    heartbeat, containers = cluster.heartbeats.get(node), cluster.containers.get(node)
    if not node or containers is None:
        return Reply(200, b"", _TEXT)
    if heartbeat is None or not heartbeat.alive:
        host = nested(pod, "status", "hostIP", default=node)
        url = f"https://{host}:10250/containerLogs/{ref.namespace}/{ref.name}/{name}"
        raise status_error(500, f'Get "{url}": dial tcp {host}:10250: connect: connection refused')
    if options.get("previous") == "true":
        raise bad_request(f'previous terminated container "{name}" in pod "{ref.name}" not found')
    lines = containers.find_log(uid_of(pod), name)
    if lines is None:
        if nested(pod, "status", "phase") == "Pending":
            waiting = nested(pod, "status", "containerStatuses", default=[])
            reason = next(
                (nested(one, "state", "waiting", "reason") for one in waiting if one["name"] == name), ""
            )
            why = {"": "ContainerCreating"}.get(reason or "", reason)
            raise bad_request(f'container "{name}" in pod "{ref.name}" is waiting to start: {why}')
        lines = ()
    stamped = options.get("timestamps") == "true"
    texts = [f"{format_time(at)} {line}\n" if stamped else f"{line}\n" for at, line in lines]
    if (tail := options.get("tailLines", "")).isdigit():
        texts = texts[len(texts) - min(int(tail), len(texts)) :]
    body = "".join(texts).encode()
    if (limit := options.get("limitBytes", "")).isdigit():
        body = body[: int(limit)]
    return Reply(200, body, _TEXT)


def _choose(pod: Raw, ref: ObjectRef, wanted: str) -> str:
    names = [
        str(one["name"]) for key in ("initContainers", "containers") for one in pod["spec"].get(key) or ()
    ]
    if wanted and wanted not in names:
        raise bad_request(f"container {wanted} is not valid for pod {ref.name}")
    own = [str(one["name"]) for one in pod["spec"].get("containers") or ()]
    if not wanted and len(own) > 1:
        listed = " ".join(own)
        raise bad_request(f"a container name must be specified for pod {ref.name}, choose one of: [{listed}]")
    return wanted or own[0]
