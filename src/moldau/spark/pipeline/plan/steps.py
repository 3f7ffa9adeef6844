"""Steps: functions of Python from DataFrames to a DataFrame, between sources and sinks.

A module beside the pipeline's file goes before one that is installed. Tasks get its functions by
value, so that the machines of a cluster need not have it.
"""

from __future__ import annotations

import hashlib
import sys
import sysconfig
import traceback
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NoReturn

from moldau.spark.pipeline.errors import PipelineError, nearest
from moldau.spark.pipeline.file.file import PipelineFile
from moldau.spark.pipeline.file.settings import StepSettings
from moldau.spark.pipeline.reasons import in_words

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


_LIBRARY = Path(sysconfig.get_path("stdlib"))


class Steps:
    """The steps of a file. A module is loaded once, a function called whenever a query is
    planned."""

    def __init__(self, file: PipelineFile) -> None:
        self._file = file
        self._functions: dict[str, Callable[..., Any]] = {}

    def frame(self, name: str, step: StepSettings, built: Mapping[str, DataFrame]) -> DataFrame:
        """Return what a step makes of what is built so far; PipelineError if it cannot."""
        from pyspark.errors import PySparkException
        from pyspark.sql import DataFrame

        for wanted in step.inputs:
            if wanted not in built:
                self._refuse(self._file.missing(name, wanted, built), name, "from")
        function = self._functions.get(name)
        if function is None:
            function = self._functions[name] = self._load(name, step.python)
        try:
            found = function(*(built[wanted] for wanted in step.inputs))
        except PySparkException as problem:
            self._refuse(f"{step.python} failed{_place(problem)}: {in_words(problem)}", name)
        except Exception as problem:
            said = f"{type(problem).__name__}: {problem}"
            self._refuse(f"{step.python} failed{_place(problem)}: {said}", name)
        if not isinstance(found, DataFrame):
            kind = type(found).__name__
            self._refuse(f"{step.python} returned {kind}, not a DataFrame", name)
        return found

    def _load(self, name: str, python: str) -> Callable[..., Any]:
        module_name, colon, attribute = python.partition(":")
        if not (module_name and colon and attribute.isidentifier()):
            self._refuse(f"{python!r} is not of the form 'module:function'", name)
        try:
            module = _module(self._file.folder, module_name)
        except Exception as problem:
            said = f"{type(problem).__name__}: {problem}"
            self._refuse(f"{module_name} cannot be loaded{_place(problem)}: {said}", name)
        found: Callable[..., Any] | None = getattr(module, attribute, None)
        if found is None or not callable(found):
            known = [each for each in vars(module) if callable(getattr(module, each))]
            hint = nearest(attribute, known)
            self._refuse(f"{module_name} has no function {attribute!r}{hint}", name)
        return found

    def _refuse(self, message: str, name: str, setting: str = "python") -> NoReturn:
        raise PipelineError(self._file.problem(message, "steps", name, setting)) from None


def _module(folder: Path, name: str) -> ModuleType:
    path = folder.joinpath(*name.split(".")).with_suffix(".py")
    if not path.is_file():
        module = import_module(name)
        _pickle_by_value(module)
        return module
    # Two pipelines may each have a module of this name.
    tag = hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:12]
    spec = spec_from_file_location(f"moldau_step_{tag}_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[module.__name__] = module
    # It may import others that are beside it.
    sys.path.insert(0, str(folder))
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[module.__name__]
        raise
    finally:
        sys.path.remove(str(folder))
    for each in list(sys.modules.values()):
        file = getattr(each, "__file__", None)
        if file is not None and Path(file).is_relative_to(folder):
            _pickle_by_value(each)
    return module


def _pickle_by_value(module: ModuleType) -> None:
    from pyspark import cloudpickle

    register: Callable[[ModuleType], None] = cloudpickle.register_pickle_by_value
    register(module)


def _place(problem: Exception) -> str:
    """Return where in somebody's own code a step failed."""
    frames = traceback.extract_tb(problem.__traceback__)
    inside = [each for each in frames if not _is_of_others(each.filename)]
    return f" ({Path(inside[-1].filename).name}, line {inside[-1].lineno})" if inside else ""


def _is_of_others(filename: str) -> bool:
    if filename.startswith("<") or filename == __file__:
        return True
    return Path(filename).is_relative_to(_LIBRARY) or "site-packages" in Path(filename).parts
