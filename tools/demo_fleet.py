"""The operator's half of the demo: a repository, two releases and a rollout, by the installed command."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import numpy as np

from demo_children import Child, installed, typed
from vedette.bundle.folder import seal
from vedette.errors import UnavailableError
from vedette_fleet.delta.tflite_tensors import locate_tflite

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

OWNER = "demo"
COMMAND_TIMEOUT_S = 60.0
# Short, to be watched; a fleet leaves it at ten minutes. A loaded machine must not fail a good model.
TRIAL = ("--jitter-s", "0", "--trial-min-s", "3", "--trial-min-frames", "60", "--latency-ratio", "5")
TUNED_SHARE = 0.02
NEXT_VERSION = ('version: "1"', 'version: "2"')


class Offer(NamedTuple):
    """What a device fetches for a release: from the release before, and from nothing."""

    delta_bytes: int
    full_bytes: int


class _Journey(msgspec.Struct):
    base: str = msgspec.field(name="from")
    fetched_bytes: int = msgspec.field(name="bytes")


class _Released(msgspec.Struct):
    fetched: list[_Journey]


class Fleet:
    """An update repository in `folder`/repo; `say` is told each command."""

    def __init__(self, folder: Path, say: Callable[[str], None]) -> None:
        self.repo = folder / "repo"
        self.root = self.repo / "metadata" / "1.root.json"
        self._folder = folder
        self._say = say
        self._run("init", self.repo, "--owner", OWNER)

    def release(self, bundle: Path) -> Offer:
        """Publish a bundle; the delta is from the release before it, 0 where there is none."""
        answer = self._run("release", bundle, "--owner", OWNER, "--repo", self.repo, "--json", quiet=True)
        fetched = {
            journey.base: journey.fetched_bytes
            for journey in msgspec.json.decode(answer, type=_Released).fetched
        }
        full = fetched.pop("")
        return Offer(next(iter(fetched.values()), 0), full)

    def roll_out(self, release: str) -> None:
        """Offer a release to every device."""
        self._run("rollout", "start", "second", "--release", release, "--repo", self.repo, *TRIAL)

    def serve_blocks(self, port: int) -> Child:
        """Start answering devices over the broker."""
        broker = ("--broker", f"127.0.0.1:{port}")
        # A fleet would look at moments spread over a minute; one box need not wait.
        command: list[str | Path] = [
            *installed("vedette-fleet"),
            "serve-blocks",
            self.repo,
            *broker,
            "--spread-s",
            "0",
        ]
        self._say(f"$ {typed(command)}")
        return Child(command, log=self._folder / "serve-blocks.log")

    def _run(self, *arguments: str | Path, quiet: bool = False) -> bytes:
        """A command to its good end; its answer."""
        command = [*installed("vedette-fleet"), *arguments]
        self._say(f"$ {typed(command[:-1] if quiet else command)}")
        log, answer = self._folder / "vedette-fleet.log", self._folder / "vedette-fleet.out"
        with Child(command, log=log, stdout=answer) as child:
            child.wait(COMMAND_TIMEOUT_S)
        content = answer.read_bytes()
        answer.unlink()
        return content


def tuned_copy(bundle: Path, target: Path) -> Path:
    """A version 2 of a TFLite bundle that differs as a small fine-tune would: a few weights, by one step.

    Raises:
        UnavailableError: The copy cannot be written.
    """
    try:
        shutil.copytree(bundle, target)
        (model,) = target.glob("*.tflite")
        model.write_bytes(_tuned(model.read_bytes()))
        text = (target / "model.yaml").read_text(encoding="utf-8")
        (target / "model.yaml").write_text(text.replace(*NEXT_VERSION), encoding="utf-8")
    except OSError as error:
        raise UnavailableError(f"cannot write {target}: {error.strerror}", cure="free some space") from error
    seal(target)
    return target


def _tuned(content: bytes) -> bytes:
    """The file with a share of the weights of its two largest tensors one step up or down."""
    dice = np.random.default_rng(2)  # the same release 2 in every demo
    data = np.frombuffer(content, np.uint8).copy()
    weights = [t for t in locate_tflite(content) if t.element is not None and t.element.name == "int8"]
    for tensor in sorted(weights, key=lambda tensor: tensor.size_bytes)[-2:]:
        values = data[tensor.offset : tensor.end].view(np.int8)
        steps = dice.choice([-1, 0, 1], values.size, p=[TUNED_SHARE / 2, 1 - TUNED_SHARE, TUNED_SHARE / 2])
        values[:] = np.clip(values + steps, -127, 127)
    tuned: bytes = data.tobytes()
    return tuned
