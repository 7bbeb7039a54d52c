"""Metrics of what Windrow serves: of the management API and the emulated Harvester, and the pages on which they are read."""
