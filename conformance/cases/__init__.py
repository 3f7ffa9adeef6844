"""The cases, one module per API or close family; importing a module registers its cases."""

from __future__ import annotations

import importlib
import pkgutil


def load() -> None:
    """Registers every case."""
    for module in pkgutil.walk_packages(__path__, f"{__name__}."):
        importlib.import_module(module.name)
