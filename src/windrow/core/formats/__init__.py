"""Formats of values: JSON, YAML, quantities, durations, versions, networks, patterns."""
