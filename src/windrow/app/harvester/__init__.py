"""What a command or a page reads on a Harvester: with the credential of a machine, or one that its user names."""
