"""One line for each transfer, not for each block, and never a flood of lines. Pure."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from vedette.wire.topics import DeviceTopics

IDLE_NS = 3_000_000_000  # a transfer that asks for nothing any more is over
MOST_TRANSFERS = 4096
LINES_PER_S = 20


@dataclass
class _Sent:
    device: DeviceTopics
    path: str
    began_ns: int
    last_ns: int
    blocks: int = 0
    size_bytes: int = 0
    refusal: str = ""


class TransferLog:
    """Remembers the transfers under way, bounded in number; `write` is told a line when one is over."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write
        self._transfers: OrderedDict[tuple[DeviceTopics, str, str], _Sent] = OrderedDict()
        self._lines = float(LINES_PER_S)
        self._lines_ns: int | None = None
        self._left_out = 0

    def sent(self, device: DeviceTopics, xfer: str, path: str, size_bytes: int, now_ns: int) -> None:
        """A block of this size went out."""
        transfer = self._of(device, xfer, path, now_ns)
        transfer.blocks += 1
        transfer.size_bytes += size_bytes

    def refused(self, device: DeviceTopics, xfer: str, path: str, why: str, now_ns: int) -> None:
        """A request was answered with a word instead of blocks."""
        self._of(device, xfer, path, now_ns).refusal = why

    def end(self, now_ns: int, *, all_of_them: bool = False) -> None:
        """Write of the transfers that are over."""
        while self._transfers:
            key, transfer = next(iter(self._transfers.items()))
            if not all_of_them and now_ns - transfer.last_ns < IDLE_NS:
                return
            del self._transfers[key]
            self._tell(transfer, now_ns)

    def _of(self, device: DeviceTopics, xfer: str, path: str, now_ns: int) -> _Sent:
        key = (device, xfer, path)
        transfer = self._transfers.setdefault(key, _Sent(device, path, now_ns, now_ns))
        transfer.last_ns = now_ns
        self._transfers.move_to_end(key)
        if len(self._transfers) > MOST_TRANSFERS:
            self._tell(self._transfers.popitem(last=False)[1], now_ns)
        return transfer

    def _tell(self, transfer: _Sent, now_ns: int) -> None:
        since_ns = 0 if self._lines_ns is None else now_ns - self._lines_ns
        self._lines = min(float(LINES_PER_S), self._lines + since_ns / 1e9 * LINES_PER_S)
        self._lines_ns = now_ns
        if self._lines < 1:
            self._left_out += 1
            return
        self._lines -= 1
        if self._left_out:
            self._write(f"({self._left_out:,} lines were left out)")
            self._left_out = 0
        self._write(_line(transfer))


def _line(transfer: _Sent) -> str:
    path = "".join(character if character.isprintable() else "?" for character in transfer.path[:100])
    whose = f"{transfer.device.site}/{transfer.device.device}: {path}:"
    if not transfer.blocks:
        return f"{whose} {transfer.refusal}"
    seconds = (transfer.last_ns - transfer.began_ns) / 1e9
    sent = f"{transfer.blocks:,} blocks, {transfer.size_bytes:,} bytes in {seconds:.1f} s"
    return f"{whose} {sent}{'; ' if transfer.refusal else ''}{transfer.refusal}"
