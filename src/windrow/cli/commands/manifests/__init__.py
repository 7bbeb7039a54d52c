"""Commands that read a manifest."""
