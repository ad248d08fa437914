"""Calibration and evaluation samples.

Enters: a folder, a Python function, or an object of Python.
Leaves: checked samples (`Sample`), and their digest.
"""
