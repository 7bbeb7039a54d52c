"""Which VMs have a volume now, and which are about to get it: what is asked for and written down."""
