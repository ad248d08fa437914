"""Targets with the settings that they start from: one YAML file each, read by `quantizer.targets`."""
