"""Scores of tasks: outputs and a truth become a figure; top-k, cosine, and functions of users."""
