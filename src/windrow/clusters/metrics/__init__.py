"""Metrics of the cluster manager: what its objects say (`fleet`), and what it does (`manager`)."""
