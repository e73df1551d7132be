"""The paper's Algorithm 2 and equation 3 once more, one gradient and one coordinate at a time, in plain numpy."""

from __future__ import annotations

import numpy as np


def choose(gradient: np.ndarray, profiles: np.ndarray) -> int:
    """The profile of the highest cosine with the sorted magnitudes; profiles is (n, d), ascending."""
    magnitudes = np.sort(np.abs(gradient))
    cosines = []
    for psi in profiles:
        cosines.append(float(psi @ magnitudes) / (np.linalg.norm(psi) * np.linalg.norm(magnitudes)))
    return int(np.argmax(cosines))


def ranked(gradient: np.ndarray, profiles: np.ndarray) -> np.ndarray:
    """Clip the coordinate of rank t to +-psi[t]."""
    psi = profiles[choose(gradient, profiles)]
    out = np.zeros_like(gradient)
    for rank, coordinate in enumerate(np.argsort(np.abs(gradient), kind="stable")):
        out[coordinate] = min(max(gradient[coordinate], -psi[rank]), psi[rank])
    return out


def snap(gradient: np.ndarray, profiles: np.ndarray) -> np.ndarray:
    """The coordinate of rank t becomes its sign times psi[t]."""
    psi = profiles[choose(gradient, profiles)]
    out = np.zeros_like(gradient)
    for rank, coordinate in enumerate(np.argsort(np.abs(gradient), kind="stable")):
        out[coordinate] = np.sign(gradient[coordinate]) * psi[rank]
    return out
