"""The HTTP door's process, a source child: `python -m vedette.api.door CONTROL_FD PARENT_PID SPEC`.

Nothing that decodes pictures is imported before it is said how large they may be: OpenCV reads that limit
once, when it is loaded.
"""

from __future__ import annotations

import contextlib
import os
import sys

import msgspec

from vedette.api.door_messages import DoorSpec, ToDoor
from vedette.frame.channel import Channel, PeerGoneError
from vedette.frame.cpu_share import GROUP_TRIES, set_group_nice
from vedette.frame.lifeline import tie_to_parent

# Requests come before housekeeping, and after the frames of cameras, whose processes are at -10.
REQUESTS_NICE = -5
PIXELS_VARIABLE = "OPENCV_IO_MAX_IMAGE_PIXELS"


def main(arguments: list[str]) -> int:
    """Entry of the child process."""
    control_fd, parent_pid = int(arguments[0]), int(arguments[1])
    tie_to_parent(parent_pid)
    with contextlib.suppress(OSError):  # where that is allowed
        os.setpriority(os.PRIO_PROCESS, 0, REQUESTS_NICE)
    set_group_nice(REQUESTS_NICE, tries=GROUP_TRIES)
    spec = msgspec.json.decode(arguments[2], type=DoorSpec)
    # A file of some bytes may unpack to gigabytes; a picture with more pixels fits no slot in any format.
    os.environ[PIXELS_VARIABLE] = str(spec.slot_bytes)
    from vedette.api.door_process import run  # noqa: PLC0415 - after the limit is set

    control: Channel[ToDoor] = Channel.from_fd(control_fd, ToDoor)
    try:
        return run(control, spec)
    except PeerGoneError:
        return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
