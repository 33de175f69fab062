"""The decorator of every compiled function.

Kernels run without numba's reference counting (several times as fast, since a kernel takes dozens
of arrays): so they allocate nothing and return no array, but write into the arrays that they get.

numba renews its cache when the file of a function changes, but not when a function that it calls
in another file does: after an update, old compiled code would answer. So the cache lies in a folder
named after the content of all sources.
"""

import hashlib
import os
import shutil
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

from numba import config as _config
from numba import njit
from numba.core.options import DefaultOptions

_numba = cast(Any, _config)  # its settings are set at run time
_F = TypeVar("_F", bound=Callable[..., object])
_PACKAGE = Path(__file__).parent


def kernel(function: _F) -> _F:
    """Compile on first call and keep the result on disk; plain Python with NUMBA_DISABLE_JIT=1."""
    return _compiled(function, has_entry=True)


def inner_kernel(function: _F) -> _F:
    """A kernel that kernels alone call: without an entry from Python it compiles twice as fast.

    Calling one from Python crashes the process.
    """
    return _compiled(function, has_entry=False)


def inlined_kernel(function: _F) -> _F:
    """A kernel that becomes part of each kernel that calls it.

    For what takes dozens of arrays, a few microseconds and one or two callers: as a call it would
    spend much of its time on handing the arrays over.
    """
    return _compiled(function, has_entry=True, inline=True)


def _compiled(function: _F, *, has_entry: bool, inline: bool = False) -> _F:
    folder = Path(sys.modules[function.__module__].__file__ or __file__).parent
    options = {
        "cache": True,
        "error_model": "numpy",  # no test for zero before each division
        "no_cfunc_wrapper": True,
        "no_cpython_wrapper": not has_entry,
    }
    if inline:
        options["forceinline"] = True
    if hasattr(DefaultOptions, "_nrt"):
        options["_nrt"] = False
    before = _numba.CACHE_DIR
    _numba.CACHE_DIR = str(_cache_directory(folder))
    try:
        return cast(_F, cast(Any, njit)(**options)(function))
    finally:
        _numba.CACHE_DIR = before


@cache
def _cache_directory(folder: Path) -> Path:
    digest = hashlib.sha256()
    for source in sorted({*_PACKAGE.glob("*.py"), *folder.glob("*.py")}):
        digest.update(source.read_bytes())
    own = not _numba.CACHE_DIR
    base = Path(_numba.CACHE_DIR) if not own else folder / "__pycache__"
    if own and not os.access(folder, os.W_OK):
        base = Path.home() / ".cache" / "bace-env"
    directory = base / f"kernels-{folder.name}-{digest.hexdigest()[:12]}"
    if own and not directory.exists():
        for stale in base.glob(f"kernels-{folder.name}-*"):
            shutil.rmtree(stale, ignore_errors=True)
    return directory
