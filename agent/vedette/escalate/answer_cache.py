"""Answers to the very same picture, for a while: paid for once. Pure.

A key is an exact digest of what was sent. Hashes of what a picture looks like do not serve here: they
overlook new objects (see `gate.frame_gate`). An answer from here is never a sample of a calibration.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from vedette.escalate.port import CloudAnswer

# What an entry takes beside its words: objects, key, links.
ENTRY_BYTES = 700
BOX_BYTES = 300


class _Kept(NamedTuple):
    answer: CloudAnswer
    until_ns: int
    size_bytes: int


def cache_key(jpeg: bytes, model_sha256: str, prompt: str, cloud_model: str) -> bytes:
    """Digest of a picture and of everything else that an answer depends on."""
    digest = hashlib.sha256(jpeg)
    for text in (model_sha256, prompt, cloud_model):
        digest.update(b"\0" + text.encode())
    return digest.digest()


class AnswerCache:
    """Least recently used goes first; one thread owns it. `max_bytes` 0 keeps nothing."""

    def __init__(self, max_bytes: int, ttl_s: float) -> None:
        self._max_bytes = max_bytes
        self._ttl_ns = round(ttl_s * 1e9)
        self._kept: OrderedDict[bytes, _Kept] = OrderedDict()
        self.size_bytes = 0
        self.hits = self.misses = 0

    def get(self, key: bytes, now_ns: int) -> CloudAnswer | None:
        """The answer, if there is one and it is young enough."""
        kept = self._kept.get(key)
        if kept is None or now_ns >= kept.until_ns:
            self._drop(key)
            self.misses += 1
            return None
        self._kept.move_to_end(key)
        self.hits += 1
        return kept.answer

    def put(self, key: bytes, answer: CloudAnswer, now_ns: int) -> None:
        """Keep an answer; one that is larger than all the room is not kept."""
        size_bytes = _size_of(answer)
        self._drop(key)
        if size_bytes > self._max_bytes:
            return
        self._kept[key] = _Kept(answer, now_ns + self._ttl_ns, size_bytes)
        self.size_bytes += size_bytes
        while self.size_bytes > self._max_bytes:
            self._drop(next(iter(self._kept)))

    def clear(self) -> None:
        """Forget all, as after a change of models."""
        self._kept.clear()
        self.size_bytes = 0

    def _drop(self, key: bytes) -> None:
        kept = self._kept.pop(key, None)
        if kept is not None:
            self.size_bytes -= kept.size_bytes


def _size_of(answer: CloudAnswer) -> int:
    words = (
        len(answer.label or "") + len(answer.model) + sum(len(word) + 100 for word in answer.probabilities)
    )
    return ENTRY_BYTES + words + BOX_BYTES * len(answer.boxes)
