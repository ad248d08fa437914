"""Calibration and evaluation samples.

Enters: a folder, or a Python function.
Leaves: checked samples (`Sample`), and their digest.
Imports: records, base.
"""
