"""Readers of text, tables, recordings and URLs, which `READERS` and `REMOTE` name.

Enters: folders, files and URLs; recipes.
Leaves: samples.
"""
