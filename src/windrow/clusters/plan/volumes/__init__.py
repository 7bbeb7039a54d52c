"""What is decided for the sake of the guest's volumes: fencing of machines that were shut down, and the end of a cluster."""
