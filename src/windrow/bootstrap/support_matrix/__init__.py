"""Which releases of RKE2, K3s, the two Harvester charts and Harvester go together: `matrix.json` with its sources and its
date, or a file of the user's in the same form, and the comparison of a cluster with it."""
