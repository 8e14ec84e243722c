"""`vedette-fleet serve-files`."""

from __future__ import annotations

import signal
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vedette.clock import SystemClock
from vedette.errors import BadInputError
from vedette_fleet.cli.output import answer, say
from vedette_fleet.http_files import FileServer
from vedette_fleet.tuf_repository import METADATA

if TYPE_CHECKING:
    from types import FrameType

_TICK_S = 0.5


@click.command("serve-files")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--host", default="127.0.0.1", show_default=True, help="0.0.0.0 for every interface.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=8480, show_default=True, help="0 takes a free one."
)
@click.option("-q", "--quiet", is_flag=True, help="No line per request.")
def serve_files(folder: Path, host: str, port: int, *, quiet: bool) -> None:
    """Serve the repository in DIR over HTTP, with Range: metadata, targets and blobs, nothing else.

    The URL goes to standard output. For the bench and the test stand; in production, any web server.
    """
    if not (folder / METADATA).is_dir():
        raise BadInputError(f"no update repository at {folder}", cure=f"vedette-fleet init {folder}")

    def log(line: str) -> None:
        if not quiet:
            say(line)

    with FileServer((host, port), folder, clock=SystemClock(), log=log) as server:

        def stop(_signal: int, _frame: FrameType | None) -> None:
            threading.Thread(target=server.shutdown, daemon=True).start()  # it waits for the loop below

        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, stop)
        answer(server.url)
        server.serve_forever(poll_interval=_TICK_S)
