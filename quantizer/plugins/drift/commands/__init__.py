"""The commands of the plug-in `drift`."""
