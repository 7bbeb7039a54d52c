"""What a service and systemd tell each other."""
