"""Arrays in files: `.npz`, `.npy` and `.pb`, alone or in folders."""
