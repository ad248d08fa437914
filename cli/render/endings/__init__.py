"""How commands end: the verdict, and the next command."""
