"""Volumes that several machines mount over the network: NetworkFilesystems of Harvester."""
