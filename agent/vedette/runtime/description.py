"""What the model that answers is, or why none does; called on the supervisor's thread."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vedette.api.messages import ModelDescription

if TYPE_CHECKING:
    from vedette.runtime.daemon import Daemon


def describe_model(daemon: Daemon, now_ns: int) -> ModelDescription:
    """The answer to DescribeRequest."""
    generation = daemon.generation
    ready = generation.ready
    if not generation.serving or ready is None:
        reason, retry_after_s = generation.waits_for(now_ns)
        return ModelDescription(ready=False, reason=reason, retry_after_s=retry_after_s)
    return ModelDescription(
        ready=True,
        model=ready.model,
        task=ready.task,
        platform=ready.engine,
        inputs=ready.inputs,
        outputs=ready.outputs,
        bundle_bytes=ready.bundle_bytes,
        engine=ready.accelerator,
        self_test=ready.self_test,
    )
