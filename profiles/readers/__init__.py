"""Readers of data: what a source such as a folder of pictures holds, as arrays for the inputs of a model.

Enters: the name of a folder or file, what a model expects, and how its data is prepared.
Leaves: `Samples`.
Imports: storage, base.
"""
