"""One module per command: `arguments(parser)`, `run(args, context) -> exit code`; its docstring is its help."""
