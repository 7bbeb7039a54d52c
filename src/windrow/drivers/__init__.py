"""The catalogue of node drivers: what a NodeDriver names is fetched, proven, kept, asked for its flags, and offered."""
