"""The commands of the plug-in `tune`."""
