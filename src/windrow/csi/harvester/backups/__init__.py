"""Backups on the target of Harvester, and the volumes that it makes of them."""
