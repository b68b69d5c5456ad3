"""The arrays of a round: whole amounts, shares, and what holds."""

from __future__ import annotations

from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

IntArray: TypeAlias = npt.NDArray[np.int64]


FloatArray: TypeAlias = npt.NDArray[np.float64]


BoolArray: TypeAlias = npt.NDArray[np.bool_]

#: Shares closer than this are equal: a thousandth of a core in a million cores.
SHARE_TOLERANCE: Final = 1e-9
