"""What is recorded of changes in place, and asked for."""
