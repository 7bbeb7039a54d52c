"""The configuration keys of RKE2 and K3s: which there are, by release, and what each takes."""
