"""memmove for compiled code: a loop over bytes is four times as slow, as LLVM does not widen it."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

_memmove: Any = cgutils.raw_memmove


def _copy_memory(typing_context: Any, target: Any, source: Any, size: Any) -> Any:
    """Copy `size` bytes from one address to another; the two places may overlap.

    Nothing is checked: callers have done so.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        to, at, count = arguments
        pointer = ir.IntType(8).as_pointer()
        _memmove(builder, builder.inttoptr(to, pointer), builder.inttoptr(at, pointer), count, 1)
        return context.get_dummy_value()

    return types.void(types.intp, types.intp, types.intp), generate


copy_memory: Any = intrinsic(_copy_memory)
