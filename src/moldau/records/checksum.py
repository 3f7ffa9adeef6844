"""The checksum of record batches, CRC-32C, as the crc32c package computes it.

Importing that package also imports what its command line and its version number take, a tenth of
a broker's start. Only its compiled module is loaded here.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec

_PACKAGE = "crc32c"
_MODULE = "crc32c._crc32c"


def _load() -> Callable[..., int]:
    package = find_spec(_PACKAGE)
    path = None if package is None else package.submodule_search_locations
    spec = PathFinder.find_spec(_MODULE, path)
    if spec is None or spec.loader is None:
        raise ModuleNotFoundError(f"no module {_MODULE}: install crc32c", name=_MODULE)
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    checksum: Callable[..., int] = module.crc32c
    return checksum


# (data, checksum of what precedes it) -> checksum
crc32c = _load()
