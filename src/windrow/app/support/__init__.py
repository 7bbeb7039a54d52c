"""What a manager and a user put together for those who help: the pages below `/debug`, and support bundles without secrets."""
