"""Options that all commands which load a model share."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from vedette.engine.messages import WorkerSpec
from vedette.engine.port import OnFallback
from vedette.engine.threads import granted_threads

if TYPE_CHECKING:
    from pathlib import Path

F = TypeVar("F", bound=Callable[..., Any])


class BundlePath(click.Path):
    """The folder of a bundle; its name goes to the worker as text, so it has to be text."""

    def __init__(self) -> None:
        super().__init__(path_type=pathlib.Path)

    def convert(
        self,
        value: Any,  # noqa: ANN401 - click's signature
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> Path:
        """See click."""
        path = pathlib.Path(os.fsdecode(super().convert(value, param, ctx)))
        try:
            str(path).encode()
        except UnicodeEncodeError:
            self.fail(f"{str(path)!r} is no UTF-8 text (or the locale is none of UTF-8).", param, ctx)
        return path


def model_options(command: F) -> F:
    """Add --accelerator, --on-fallback and --threads."""
    for option in (
        click.option(
            "--accelerator",
            "accelerators",
            multiple=True,
            default=("cpu",),
            show_default=True,
            help="What to run on, in order of preference; repeat the option.",
        ),
        click.option(
            "--on-fallback",
            type=click.Choice([choice.value for choice in OnFallback]),
            default=OnFallback.WARN.value,
            show_default=True,
            help="When the first accelerator cannot be had.",
        ),
        click.option("--threads", type=click.IntRange(1, 1024), help="Engine threads; default: by the CPUs."),
    ):
        command = option(command)
    return command


def worker_spec_from(
    bundle: Path, accelerators: tuple[str, ...], on_fallback: str, threads: int | None
) -> WorkerSpec:
    """The worker spec for these options."""
    return WorkerSpec(
        bundle=str(bundle.absolute()),
        accelerators=tuple(name.lower() for name in accelerators),
        on_fallback=OnFallback(on_fallback),
        threads=granted_threads("auto" if threads is None else threads),
    )
