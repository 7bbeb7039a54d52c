"""Machines whose host on Harvester is in maintenance: what is held, and what is done."""
