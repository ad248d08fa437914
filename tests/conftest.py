"""What holds for all tests: an example may take as long as a busy machine lets it."""

from hypothesis import settings

settings.register_profile("unhurried", parent=settings(), deadline=None)
settings.load_profile("unhurried")
