"""Targets and recipes: one YAML file each, read by `quantizer.targets`."""
