"""Frames as a pipe carries them: raw video and y4m, small and different from each other."""

from __future__ import annotations

WIDTH, HEIGHT = 64, 48
RAW_BYTES = WIDTH * HEIGHT * 3
RAW_VIDEO = ("--format", "rawvideo", "--size", f"{WIDTH}x{HEIGHT}", "--pix-fmt", "bgr24")
Y4M_HEADER = f"YUV4MPEG2 W{WIDTH} H{HEIGHT} F25:1 Ip A1:1 C420jpeg\n".encode()
Y4M_BYTES = WIDTH * HEIGHT * 3 // 2


def raw_frames(count: int, *, tail_bytes: int = 0) -> bytes:
    return b"".join(bytes([index % 256]) * RAW_BYTES for index in range(count)) + b"\x80" * tail_bytes


def y4m_frames(count: int, *, tail_bytes: int = 0) -> bytes:
    frames = b"".join(b"FRAME\n" + bytes([index % 256]) * Y4M_BYTES for index in range(count))
    return Y4M_HEADER + frames + (b"FRAME\n" + b"\x80" * tail_bytes if tail_bytes else b"")
