"""Hosts of Harvester."""
