"""Changes in place: turns of machines, and when they may begin."""
