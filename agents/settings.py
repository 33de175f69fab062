"""Numbers in what follows a policy's name."""

from typing import Any

import numpy as np


def read_number(key: str, text: str, *, whole: bool = False) -> Any:
    """A finite number of at least 0.

    Raises:
        ValueError: It is none, naming the setting, the rule and the value.
    """
    try:
        value = int(text) if whole else float(text)
    except ValueError:
        value = -1
    if not 0 <= value < np.inf:
        kind = "a whole number" if whole else "a number"
        raise ValueError(f"{key}: must be {kind} >= 0, got {text!r}")
    return value
