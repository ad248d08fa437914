"""The packaged targets by name: one YAML file for each in configs/."""

from __future__ import annotations

from importlib import resources

from ...profiles.base.errors import ConfigError, nearest

PLACE = "qprof_onnx.configs"


def target_names() -> tuple[str, ...]:
    """Return the names of the packaged targets, sorted."""
    files = [file.name for file in resources.files(PLACE).iterdir()]
    return tuple(sorted(name.removesuffix(".yaml") for name in files if name.endswith(".yaml")))


def packaged_text(name: str, where: str = "") -> str:
    """Return the text of a packaged target's file; for an unknown name, ConfigError with the nearest name."""
    names = target_names()
    if name not in names:
        raise ConfigError(
            f"{where and f'{where}: '}target '{name}': no such target.{nearest(name, names)} There are "
            f"{', '.join(names)}; or give a YAML file"
        )
    return resources.files(PLACE).joinpath(f"{name}.yaml").read_text(encoding="utf-8")
