"""A new Cluster that begins with a snapshot of another: what it takes of that, and its separation from it."""
