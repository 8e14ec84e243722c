"""What of a model's bundle is needed to ask a large model about its answers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from vedette.bundle.folder import load_bundle
from vedette.errors import BundleError
from vedette.escalate.label_map import LabelMap

if TYPE_CHECKING:
    from vedette.bundle.folder import Bundle
    from vedette.wire.bundle import Task

MAX_ALIASES_BYTES = 4 << 20


class AskedModel(NamedTuple):
    """One model file; `labels` by class index, `box_threshold` the score from which a box is an answer."""

    sha256: str
    name: str
    version: str
    task: Task
    labels: tuple[str, ...]
    words: LabelMap
    prompt: str
    box_threshold: float


def load_asked_model(folder: str, model_sha256: str) -> AskedModel:
    """Read a bundle that is verified on the way.

    Raises:
        BundleError: It is damaged, is another model's, or its aliases are none.
    """
    bundle = load_bundle(Path(folder))
    if bundle.model_sha256 != model_sha256:
        raise BundleError(
            f"{folder} holds the model {bundle.model_sha256[:12]}, and {model_sha256[:12]} serves",
            cure="leave a bundle that serves alone; install another one beside it",
        )
    spec = bundle.spec
    offset = 0 if spec.output.labels is None else spec.output.labels.offset
    labels = bundle.labels[offset:]
    return AskedModel(
        model_sha256,
        spec.name,
        spec.version,
        spec.task,
        labels,
        LabelMap(labels, _aliases(bundle)),
        spec.escalation.prompt,
        spec.output.score_threshold,
    )


def _aliases(bundle: Bundle) -> dict[str, str]:
    name = bundle.spec.escalation.aliases
    if name is None:
        return {}
    try:
        return msgspec.json.decode(bundle.read(name, MAX_ALIASES_BYTES), type=dict[str, str])
    except msgspec.DecodeError as error:
        raise BundleError(
            f"{name} is no file of aliases: {error}",
            cure='write {"their word": "our label", ...}, and pack the bundle again',
        ) from error
