"""Pictures in folders, prepared as a recipe says."""
