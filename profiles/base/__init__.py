"""Ground floor: errors, files, the YAML subset, plain results.

Enters: nothing of qprof.
Leaves: small helpers that every room may use.
Imports: none.
"""
