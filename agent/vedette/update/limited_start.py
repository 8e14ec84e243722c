"""How a limited child begins: it stands back behind everybody before it imports anything heavy.

Started as `python -m vedette.update.limited_start MODULE FD PARENT_PID LIMITS`; see `limited_child`.
"""

from __future__ import annotations

import sys

from vedette.engine.priority import stand_back


def main(arguments: list[str]) -> int:
    """Stand back, then be the child."""
    stand_back()
    from vedette.update import limited_child  # noqa: PLC0415 - its imports are some of the heavy ones

    return limited_child.main(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
