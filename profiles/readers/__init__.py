"""Readers of text, tables, recordings and URLs: siblings of the core, which `READERS` and `REMOTE` name.

Enters: folders, files and URLs; recipes.
Leaves: samples.
"""
