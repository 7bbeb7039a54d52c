"""What is read of the volumes of a guest cluster: in the guest, and on Harvester."""
