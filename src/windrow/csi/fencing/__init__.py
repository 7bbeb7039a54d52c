"""Fencing by the CSI driver: the taint out-of-service for Nodes whose VM was shut down, where no cluster manager sees to it."""
