"""One module for each command: parse, call, render; under 60 lines each."""
