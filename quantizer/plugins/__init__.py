"""What the core does without: it knows each plug-in by entries of its tables alone (`OptionalModule`)."""
