"""Records of the JSON that commands print and of the files that people write, and their JSON Schemas."""
