"""Commands that run a server, or keep what it has."""
