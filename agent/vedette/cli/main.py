"""Entry point of `vedette-agent`. What takes time is imported inside, where Ctrl-C is already understood."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> None:
    """Errors become one clear message and the exit code of their family."""
    try:
        status = _run(arguments)
    except KeyboardInterrupt:
        sys.stderr.write("vedette-agent: interrupted\n")
        status = INTERRUPTED
    sys.exit(status)


def _run(arguments: Sequence[str] | None) -> int:
    import click  # noqa: PLC0415 - takes longer than Ctrl-C

    from vedette.cli.commands import cli  # noqa: PLC0415 - as above
    from vedette.cli.terminal import claim_standard_streams  # noqa: PLC0415 - as above
    from vedette.errors import InternalError, UsageError, VedetteError  # noqa: PLC0415 - as above

    claim_standard_streams()
    try:
        status = cli.main(args=arguments, prog_name="vedette-agent", standalone_mode=False)
    except VedetteError as error:
        click.echo(f"vedette-agent: {error.diagnostics()}", err=True)
        return error.exit_code
    except click.exceptions.Exit as error:
        return error.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except click.Abort as error:
        raise KeyboardInterrupt from error
    except UnicodeEncodeError as error:
        name = error.object.encode(errors="backslashreplace").decode()
        click.echo(
            f"vedette-agent: {name[:200]!r} is no text that {error.encoding} can carry\n"
            "  cure: use names in UTF-8, and a UTF-8 locale: LC_ALL=C.UTF-8",
            err=True,
        )
        return UsageError.exit_code
    except Exception as error:  # noqa: BLE001 - whatever it is, it is our bug and has that exit code
        import traceback  # noqa: PLC0415 - as above

        traceback.print_exc()
        click.echo(f"vedette-agent: this is a bug, please report it: {error!r}", err=True)
        return InternalError.exit_code
    return status if isinstance(status, int) else 0
