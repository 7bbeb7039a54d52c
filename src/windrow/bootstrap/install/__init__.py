"""How a machine gets its distribution: the unit and script that install it, and the probe of its kernel before that."""
