"""The port Volumes on Harvester: claims, snapshots, and disks that are plugged into running VMs."""
