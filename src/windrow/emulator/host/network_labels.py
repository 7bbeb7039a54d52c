"""Harvester's network controller: the labels of NetworkAttachmentDefinitions follow their configuration."""

from __future__ import annotations

from datetime import timedelta

from windrow.core.formats.json import dumps, loads
from windrow.emulator import kinds
from windrow.emulator.host.networks import BadNetwork, is_network_ready, label_network, read_config, vlan_of
from windrow.emulator.kit.client import AdminClient
from windrow.emulator.kit.listers import Key, Listers
from windrow.kubernetes.objects import Raw, is_deleting


class NetworkController:
    """Sets the labels of a new definition; its webhook sets those of a changed one (`admission.networks`)."""

    def __init__(self, client: AdminClient, listers: Listers) -> None:
        self._client = client
        self._listers = listers

    async def reconcile(self, key: Key) -> timedelta | None:
        found = self._listers.networks.get(key)
        if found is None or is_deleting(found):
            return None
        wanted: Raw = loads(dumps(found))
        self._label(wanted)
        if wanted != found:
            await self._client.mutate(kinds.NAD.ref(key[1], key[0]), self._label)
        return None

    def _label(self, nad: Raw) -> None:
        """Without a cluster network or a configuration of a bridge the labels stay as they are."""
        try:
            is_bridge = read_config(nad).get("type", "") in ("", "bridge")
        except BadNetwork:
            return
        cluster_network = self._listers.cluster_networks.get(("", vlan_of(nad)[0]))
        if is_bridge and cluster_network is not None:
            label_network(nad, is_network_ready(cluster_network))
