"""Bundles that bring their own stub engine's faults: two models in one daemon, each with its own."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace
from tests.stubs.engines import open_stub
from tests.stubs.running import STUB_OPTIONS, stub_bundle

from vedette.bundle.folder import seal
from vedette.engine.messages import WorkerSpec

if TYPE_CHECKING:
    from pathlib import Path

    from tests.stubs.engines import StubEngine

    from vedette.engine.port import EngineRequest, Progress

PLAY = "play.json"
_HERE = "tests.stubs.played_bundles:open_played"


def played_bundle(
    root: Path, *, spec: dict[str, Any] | None = None, files: dict[str, bytes] | None = None, **options: str
) -> Path:
    """A sealed bundle that says itself how its engine is to behave.

    `spec` changes `model.yaml`; `files` come along.
    """
    stub_bundle(root, **{"version": root.name, **(spec or {})})
    for name, content in (files or {}).items():
        (root / name).write_bytes(content)
    (root / PLAY).write_text(json.dumps(options), encoding="utf-8")
    seal(root)
    return root


def played_worker(bundle: Path) -> WorkerSpec:
    """A worker for it, and for any other of the kind, whatever engine it names."""
    return WorkerSpec(
        bundle=str(bundle),
        options=STUB_OPTIONS,
        plugins={"onnx": _HERE, "litert": _HERE},
        warmup_runs=1,
    )


def open_played(request: EngineRequest, progress: Progress) -> StubEngine:
    """The stub engine, told by the bundle that it stands for."""
    play = json.loads((request.model_path.parent / PLAY).read_text(encoding="utf-8"))
    return open_stub(replace(request, options={**request.options, **play}), progress)
