"""The state directory of a manager or an emulator: its files, its CA, backup and restore."""
