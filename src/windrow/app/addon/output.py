"""The text that Harvester's scripts print, from the first heading on, so that what reads it goes on.

generate_addon.sh (cloud provider, no target) and generate_addon_csi.sh (RKE1, RKE2, K3s) have two spellings of the first heading, and
the second indents its list. Different here: both paths where charts and kubelets look for the credential, and mode 0600.
"""

from __future__ import annotations

import textwrap
from base64 import b64encode
from typing import Literal

Target = Literal["", "rke1", "rke2", "k3s"]
# Of the kubelets and of charts as their documentation has it, and the default of both charts, under K3s as well.
PATHS = ("/etc/kubernetes/cloud-config", "/var/lib/rancher/rke2/etc/config-files/cloud-provider-config")
DEFAULT_MODE = "0600"
_RKE1_MANIFEST = (
    "https://raw.githubusercontent.com/harvester/harvester-csi-driver/master/deploy/manifests/deployment.yaml"
)


def render_output(kubeconfig: str, target: Target = "", mode: str = DEFAULT_MODE) -> str:
    """What the script for `target` prints; files get `mode`."""
    if target == "rke1":
        return _render_rke1(kubeconfig)
    heading, indent = ("cloud-config", "  ") if target else ("cloud config", "")
    files = textwrap.indent("\n".join(_render_file(path, kubeconfig, mode) for path in PATHS), indent)
    return (
        f"########## {heading} ############\n{kubeconfig}\n"
        f"########## cloud-init user data ############\nwrite_files:\n{files}\n"
    )


def _render_file(path: str, kubeconfig: str, mode: str) -> str:
    content = b64encode(kubeconfig.encode()).decode()
    return (
        f"- encoding: b64\n  content: {content}\n  owner: root:root\n  path: {path}\n  permissions: '{mode}'"
    )


def _render_rke1(kubeconfig: str) -> str:
    return (
        "========RKE-ADDON-CONFIGURATION-FOR-HARVESTER_CSI_DRIVER==========\n"
        "  addons: |-\n"
        "    ---\n"
        "    apiVersion: v1\n"
        "    kind: Secret\n"
        "    metadata:\n"
        "      name: harvester-csi-config\n"
        "      namespace: kube-system\n"
        "    type: Opaque\n"
        "    stringData:\n"
        "      cloud-provider-config: |\n"
        f"{textwrap.indent(kubeconfig, '        ')}"
        "  addons_include:\n"
        f"  - {_RKE1_MANIFEST}\n"
    )
