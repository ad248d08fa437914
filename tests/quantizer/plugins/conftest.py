"""What the commands of plug-ins work on."""

from ...cli.conftest import profile

__all__ = ["profile"]
