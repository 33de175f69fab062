"""Files that are written whole or not at all."""

import os
import tempfile
from pathlib import Path

from bace_env.errors import ConfigError


def write_atomically(path: Path, content: bytes | None) -> None:
    """Write a file whole or not at all; None only tries whether one could be written."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content or b"")
        if content is not None:
            os.chmod(name, 0o644)
            os.replace(name, path)
    finally:
        Path(name).unlink(missing_ok=True)


def require_parent(option: str, path: Path) -> None:
    """Refuse a file in a folder that does not exist, or that cannot be written there."""
    if os.path.isdir(path) and os.path.isdir(path.parent):
        raise ConfigError(f"{option} {path}: is a folder, must be a file")
    require_writable(option, path)


def require_writable(option: str, path: Path) -> None:
    """Refuse a path whose folder does not exist or where nothing can be written."""
    if not os.path.isdir(path.parent):
        raise ConfigError(f"{option} {path}: no such folder {path.parent}")
    try:
        write_atomically(path, None)
    except (OSError, ValueError) as error:  # ValueError: a null byte
        reason = error.strerror if isinstance(error, OSError) else error
        raise ConfigError(f"{option} {path}: cannot write: {reason}") from None
