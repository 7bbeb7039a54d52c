"""Commands of kubectl, as messages print them for operators.

A message is read where its object is. So a command without `--kubeconfig` is for the API server that shows the message; one
for another API server names that server's kubeconfig, in capitals, for the reader to replace.
"""

from __future__ import annotations

from windrow.kubernetes.resources import ObjectRef

ON_HARVESTER = "HARVESTER.yaml"
IN_GUEST = "GUEST.yaml"


def render_kubectl(command: str, namespace: str = "", kubeconfig: str = "") -> str:
    """`kubectl`, where it is to be run, and `command`. `kubeconfig` is "" for the API server that shows the message."""
    server = f" --kubeconfig {kubeconfig}" if kubeconfig else ""
    where = f" -n {namespace}" if namespace else ""
    return f"kubectl{server}{where} {command}"


def render_delete(ref: ObjectRef, *others: str, kubeconfig: str = "") -> str:
    """The command that deletes the object, and `others` of its kind and namespace."""
    command = " ".join(("delete", ref.kind.group_resource, ref.name, *others))
    return render_kubectl(command, ref.namespace, kubeconfig)
