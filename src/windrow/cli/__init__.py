"""The command line: one verb, one file; what is printed is made by pure functions in `screens`."""
