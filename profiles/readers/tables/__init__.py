"""Rows with named columns: tables, data sets on disk, tar shards; each row goes through a recipe.

A row may hold numbers, texts, pictures or recordings: which of them the model takes, its recipe says.
"""
