"""Ground floor: errors, files, the YAML subset, JSON values, free names.

Enters: nothing of qprof.
Leaves: small helpers that every room may use.
"""
