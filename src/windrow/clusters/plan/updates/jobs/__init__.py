"""The Jobs of a turn: the one that asks the machine before anything is done, and what is left of former ones."""
