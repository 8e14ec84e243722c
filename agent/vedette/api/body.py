"""A request's body as it came in, piece by piece; nothing is joined that need not be. Pure."""

from __future__ import annotations


class Body:
    """Pieces in their order; `size_bytes` of them."""

    def __init__(self, pieces: tuple[bytes | memoryview, ...] = ()) -> None:
        self._pieces: list[memoryview] = []
        self.size_bytes = 0
        for piece in pieces:
            self.add(piece)

    def add(self, piece: bytes | memoryview) -> None:
        """Append a piece; it is kept, not copied."""
        if piece:
            self._pieces.append(memoryview(piece))
            self.size_bytes += len(piece)

    def slices(self, start: int, size_bytes: int) -> tuple[memoryview, ...]:
        """Views that together are `size_bytes` from `start` on; fewer where the body ends before."""
        found: list[memoryview] = []
        left = size_bytes
        for piece in self._pieces:
            if left <= 0:
                break
            if start >= len(piece):
                start -= len(piece)
                continue
            view = piece[start : start + left]
            found.append(view)
            left -= len(view)
            start = 0
        return tuple(found)

    def take(self, start: int, size_bytes: int) -> bytes:
        """The same in one piece."""
        return b"".join(self.slices(start, size_bytes))


def copy_pieces(pieces: tuple[memoryview, ...], target: memoryview) -> None:
    """Put pieces one after the other into memory that is at least as large."""
    at = 0
    for piece in pieces:
        target[at : at + len(piece)] = piece
        at += len(piece)
