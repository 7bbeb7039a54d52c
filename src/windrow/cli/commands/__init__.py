"""One module for each verb: `arguments(parser)`, `run(given, edge) -> exit code`, and its help as the docstring."""
