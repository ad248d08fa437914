"""What was measured: calibration data, profiling runs, profiles and their files."""
