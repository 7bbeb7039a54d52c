"""The docker-machine plugin: our node driver as a process of its own, asked over RPC by a host such as rancher-machine."""
