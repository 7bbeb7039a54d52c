"""What a long-running program serves for probes and Prometheus: health checks and metrics, over HTTPS."""
