"""The command line: one module for each command under commands/, found lazily."""
