"""The probe of the kernel for `macvlan`, by which kube-vip gets the addresses of services by DHCP, and how it is told.

The script makes such an interface, in a network namespace that ends with it, because neither modprobe nor a list of modules
says what the kernel would do. A veth pair bears it: without these no container has a network, so where one cannot be made,
the probe was kept from it and says nothing. The result is a label of the Node in a file that RKE2 and K3s read beside their
configuration. They renew the labels of their Node at each start, and the install unit runs the script before that, so another
kernel shows after the next boot. Nothing waits for the result, and a script that fails, or ends early, keeps no machine from
its start.
"""

from __future__ import annotations

from windrow.bootstrap.cloud_config import File
from windrow.bootstrap.layout import Layout
from windrow.harvester.names import MACVLAN, MACVLAN_AVAILABLE, MACVLAN_MISSING

_PARENT = "ip link add name windrow0 type veth peer name windrow1"
_CHILD = "ip link add link windrow0 name windrow2 type macvlan mode bridge"


def list_probe_files(layout: Layout, directory: str) -> list[File]:
    """The script, in `directory`."""
    return [File(probe_script(directory), _render_script(layout), "0755")]


def probe_script(directory: str) -> str:
    return f"{directory}/probe-kernel.sh"


# Written beside and renamed, so that no start reads half of it. An older result than this boot's is no result.
def _render_script(layout: Layout) -> str:
    return f"""\
#!/bin/sh
# Whether the kernel has macvlan, as label {MACVLAN} of the Node; nothing where that cannot be seen.
set -eu
rm -f {layout.probe_file}
unshare --net {_PARENT} || exit 0
found={MACVLAN_MISSING}
if unshare --net sh -c "{_PARENT} && {_CHILD}"; then
  found={MACVLAN_AVAILABLE}
fi
echo "node-label+: [{MACVLAN}=$found]" > {layout.probe_file}.new
mv {layout.probe_file}.new {layout.probe_file}
"""
