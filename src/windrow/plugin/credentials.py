"""The kubeconfig of the machine's Harvester: server and credential.

The machine's own kubeconfig, and nothing else. The Go driver takes whatever it finds where there is none (KUBECONFIG,
~/.kube/config, K3s' files, a pod's service account), and so may act on the cluster that Rancher runs on. Such a
credential is opt-in: WINDROW_DRIVER_KUBECONFIG names a file, or `in-cluster` for the pod's service account.
"""

from __future__ import annotations

from collections.abc import Mapping

from windrow.kubernetes.kubeconfig import (
    BadKubeconfig,
    ClientConfig,
    ReadFile,
    in_cluster_config,
    parse_kubeconfig,
)

OPT_IN = "WINDROW_DRIVER_KUBECONFIG"
IN_CLUSTER = "in-cluster"


def find_client_config(kubeconfig: str, env: Mapping[str, str], read_file: ReadFile) -> ClientConfig:
    """Raises BadKubeconfig.

    The machine's kubeconfig came over the wire, so it may not name files of this machine: their content would go to
    the server that it names.
    """
    if kubeconfig.strip():
        return parse_kubeconfig(kubeconfig)
    source = env.get(OPT_IN, "")
    if not source:
        raise BadKubeconfig(
            "the machine has no kubeconfig",
            "give one by --harvester-kubeconfig-content or HARVESTER_KUBECONFIG_CONTENT; "
            f"credentials of this machine are used only where {OPT_IN} names a file, or {IN_CLUSTER!r}",
        )
    if source == IN_CLUSTER:
        return in_cluster_config(env, read_file)
    try:
        text = read_file(source)
    except (OSError, UnicodeError) as error:
        raise BadKubeconfig(f"{OPT_IN} names {source}: {error}", "correct the path") from error
    return parse_kubeconfig(text, read_file=read_file)
