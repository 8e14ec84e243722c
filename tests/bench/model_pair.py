"""A small and a large classifier of the same pictures, trained within seconds, and what they say of a pool.

Fashion-MNIST where Debian's package `dataset-fashion-mnist` is installed, else scikit-learn's digits (1,797
pictures: too few for narrow figures). The large one is a ridge regression on random features of whole
pictures, the small one on few features of pictures of half the size, its weights rounded to 8 bits. Both
are trained on pictures that are not in the pool.
"""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
FASHION = Path("/usr/share/datasets/fashion-mnist")
POOL = 20_000
TRAINED = 24_000
LARGE_FEATURES, SMALL_FEATURES = 2500, 300
LOGIT_SCALE = 6.0


class Pool(NamedTuple):
    """Pictures that neither model was trained on; logits are (pictures, classes)."""

    name: str
    small: Array
    large: Array
    truth: Array

    @property
    def local(self) -> Array:
        """The small model's classes."""
        return np.asarray(self.small.argmax(axis=1))

    @property
    def cloud(self) -> Array:
        """The large model's classes."""
        return np.asarray(self.large.argmax(axis=1))


class Ridge:
    """Random ReLU features and a linear layer in closed form."""

    def __init__(self, pictures: Array, classes: Array, features: int, seed: int, *, bits: int = 0) -> None:
        rng = np.random.default_rng(seed)
        inputs = pictures.shape[1]
        self._random = rng.normal(0, inputs**-0.5, (inputs, features)).astype(np.float32)
        self._bias = rng.uniform(-0.5, 0.5, features).astype(np.float32)
        hidden = self._hidden(pictures)
        wanted = np.eye(10, dtype=np.float32)[classes]
        gram = hidden.T @ hidden + np.eye(features, dtype=np.float32) * (1e-3 * len(hidden))
        self._weights = np.linalg.solve(gram.astype(np.float64), hidden.T @ (wanted - 0.1)).astype(np.float32)
        if bits:
            step = np.abs(self._weights).max() / (2 ** (bits - 1) - 1)
            self._weights = np.round(self._weights / step) * step

    def _hidden(self, pictures: Array) -> Array:
        return np.asarray(np.maximum(pictures @ self._random + self._bias, 0), np.float32)

    def logits(self, pictures: Array) -> Array:
        """(pictures, classes)."""
        return np.asarray(LOGIT_SCALE * (self._hidden(pictures) @ self._weights), np.float32)


def _halved(pictures: Array, side: int) -> Array:
    whole = pictures.reshape(-1, side // 2, 2, side // 2, 2)
    return np.asarray(whole.mean(axis=(2, 4)).reshape(len(pictures), -1), np.float32)


def _fashion() -> tuple[Array, Array]:
    def read(name: str, header: int) -> Array:
        return np.frombuffer(gzip.decompress((FASHION / name).read_bytes()), np.uint8, offset=header)

    parts = [
        (read(f"{part}-images-idx3-ubyte.gz", 16).reshape(-1, 784), read(f"{part}-labels-idx1-ubyte.gz", 8))
        for part in ("train", "t10k")
    ]
    return np.concatenate([p for p, _ in parts]), np.concatenate([c for _, c in parts])


def _digits() -> tuple[Array, Array]:
    from sklearn.datasets import load_digits

    found = load_digits()
    return np.asarray(found.data * 15, np.uint8), np.asarray(found.target)


def load_pool(seed: int = 1) -> Pool:
    """Train both and let them answer the pool; the same figures each time."""
    pictures, classes = _fashion() if FASHION.exists() else _digits()
    name = "Fashion-MNIST" if FASHION.exists() else "digits"
    order = np.random.default_rng(seed).permutation(len(pictures))
    pool_size = min(POOL, len(pictures) // 2)
    pool, rest = order[:pool_size], order[pool_size : pool_size + TRAINED]
    side = round(pictures.shape[1] ** 0.5)
    whole = pictures.astype(np.float32) / 255
    large = Ridge(whole[rest], classes[rest], min(LARGE_FEATURES, len(rest)), seed)
    half = _halved(whole, side)
    small = Ridge(half[rest], classes[rest], SMALL_FEATURES, seed + 1, bits=8)
    return Pool(name, small.logits(half[pool]), large.logits(whole[pool]), classes[pool])
