"""NodeDrivers: downloaded, verified, installed, probed for their create flags, and offered as machine config kinds."""
