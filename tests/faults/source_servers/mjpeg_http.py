"""A small HTTP camera on loopback: multipart JPEG parts, which may end or fall silent."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self

SHUTDOWN_S = 5.0


class MjpegHttpServer:
    """Sends `pictures` in turn at `fps`; after `frames` of them it closes, or stays silent if `mute`."""

    def __init__(self, pictures: list[bytes], *, fps: float, frames: int, mute: bool = False) -> None:
        self._stop = threading.Event()
        stop = self._stop

        class Camera(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200)
                self.send_header("Content-Type", "multipart/x-mixed-replace; boundary=frame")
                self.end_headers()
                for index in range(frames):
                    picture = pictures[index % len(pictures)]
                    head = f"--frame\r\nContent-Type: image/jpeg\r\nContent-Length: {len(picture)}\r\n\r\n"
                    self.wfile.write(head.encode() + picture + b"\r\n")
                    if stop.wait(1 / fps):
                        return
                while mute and not stop.wait(0.05):
                    pass

            def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002, ANN401 - overridden
                """Keep quiet."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Camera)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    @property
    def url(self) -> str:
        """The stream's address, with a token that must not be shown anywhere."""
        return f"http://127.0.0.1:{self._server.server_address[1]}/video.mjpg?token=hunter2"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(timeout=SHUTDOWN_S)
