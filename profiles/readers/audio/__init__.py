"""Recordings, cut into the windows that a model takes."""
