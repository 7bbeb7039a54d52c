"""What the command line prints: pure functions from data to lines; only `terminal` draws on a terminal."""
