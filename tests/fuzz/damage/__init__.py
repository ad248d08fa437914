"""The parts of the fuzzer `damaged_inputs`: base files, families of damage, running, judging."""
