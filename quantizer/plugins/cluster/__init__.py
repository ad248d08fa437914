"""A calibration run on the workers of a Dask cluster, which `CLUSTER` names.

Enters: a model and shards of samples.
Leaves: the profile of all.
"""
