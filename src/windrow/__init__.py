"""Kubernetes clusters on Harvester HCI, and an embedded Harvester to try them on."""

__version__ = "0.1.0"
