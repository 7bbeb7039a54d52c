"""Commands that show what is there and what happens."""
