"""Measured on data: what each node costs, and the search for a plan that keeps a promise."""
