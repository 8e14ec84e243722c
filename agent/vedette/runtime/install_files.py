"""What `vedette-agent install` writes, and where. Pure but for reading the templates that come along."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import vedette
from vedette.errors import UnavailableError

UNIT, INSTANCES = "vedette-agent.service", "vedette-agent@.service"
_EXEC = re.compile(r"^ExecStart=\S+", re.MULTILINE)


class Planned(NamedTuple):
    """One file; one that is `yours` is never overwritten, and stays when it was changed."""

    path: Path
    content: str
    mode: int = 0o644
    yours: bool = False


class Choices(NamedTuple):
    """`root` is where the files go, `/` on a running system; `home` makes it a user's own service."""

    root: Path
    program: Path
    model: Path
    camera: str
    home: Path | None = None


def planned_files(choices: Choices) -> list[Planned]:
    """Every file of an installation.

    Raises:
        UnavailableError: The templates did not come along.
    """
    if choices.home is not None:
        config, state = choices.home / ".config", choices.home / ".local/state/vedette"
        unit = _for_program(template("vedette-agent.user.service"), choices.program)
        return [
            Planned(config / "systemd/user" / UNIT, unit),
            Planned(config / "vedette/agent.yaml", _config(choices, state), 0o600, yours=True),
        ]
    root = choices.root
    return [
        Planned(root / "etc/systemd/system" / name, _for_program(template(name), choices.program))
        for name in (UNIT, INSTANCES)
    ] + [
        Planned(root / "usr/lib/sysusers.d/vedette.conf", template("vedette.sysusers.conf")),
        Planned(root / "usr/lib/tmpfiles.d/vedette.conf", template("vedette.tmpfiles.conf")),
        Planned(root / "etc/vedette/agent.yaml", _config(choices, Path("/var/lib/vedette")), yours=True),
    ]


def template(name: str) -> str:
    """A file of the folder `systemd`, which lies in the package, or beside it in a source tree.

    Raises:
        UnavailableError: It is in neither.
    """
    package = Path(vedette.__file__).parent
    for folder in (package / "systemd", package.parents[1] / "systemd"):
        if (folder / name).is_file():
            return (folder / name).read_text(encoding="utf-8")
    raise UnavailableError(
        f"the template {name} did not come along with this installation",
        cure="install from the source tree, from a wheel that was built of it, or from the Debian package",
    )


def _for_program(unit: str, program: Path) -> str:
    return _EXEC.sub(f"ExecStart={program}", unit)


def _config(choices: Choices, state: Path) -> str:
    return template("agent.yaml").format(model=choices.model, camera=choices.camera, state=state)
