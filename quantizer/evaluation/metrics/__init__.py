"""Scores of tasks: how outputs become a figure, by which truth; top-k, cosine, and functions of users."""
