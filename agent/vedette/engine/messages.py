"""What the daemon and an engine worker say to each other. Pure."""

from __future__ import annotations

import msgspec

from vedette.engine.port import OnFallback
from vedette.engine.priority import Pace
from vedette.gate.reuse_rules import ReuseRules, Use
from vedette.gate.setting import GateSetting
from vedette.vision.tensors import TensorInfo
from vedette.wire.causes import DropCause
from vedette.wire.escalation import Reason
from vedette.wire.messages import AcceleratorReport, ModelRef, Result, SelfTest


class WorkerSpec(msgspec.Struct, frozen=True):
    """How a worker process is to load its model; travels as JSON on the command line.

    `plugins` overrides or adds engines by "module:factory". `warmup_runs` are inferences made before READY.
    `pace` is the priority of loading, and of everything until it serves.
    """

    bundle: str
    accelerators: tuple[str, ...] = ("cpu",)
    on_fallback: OnFallback = OnFallback.WARN
    threads: int = 1
    cache_dir: str | None = None
    options: dict[str, str] = {}
    plugins: dict[str, str] = {}
    warmup_runs: int = 3
    pace: Pace = Pace.NORMAL


class Attach(msgspec.Struct, frozen=True, tag=True):
    """Serve a camera from the ring whose descriptors come along.

    A `shadow` reads along and never holds a slot; it takes the newest frame once `every` new ones have come,
    and none while a frame is younger than `hold_ns`. With `reuse` an answer is given again while nothing
    changes before the camera.
    """

    camera: str
    seat: int
    priority: int = 1
    max_age_ns: int | None = None
    shadow: bool = False
    every: int = 1
    hold_ns: int = 0
    reuse: ReuseRules | None = None


class Detach(msgspec.Struct, frozen=True, tag=True):
    """Serve a camera no longer."""

    camera: str


class AnswerTo(msgspec.Struct, frozen=True, tag=True):
    """Tell answers of this camera to whoever gave the frames, too, over the channel that comes along.

    Frames up to `since_seq` were given by another one, who is gone.
    """

    camera: str
    since_seq: int = 0


class SetGate(msgspec.Struct, frozen=True, tag=True):
    """Judge answers by this setting from now on; one for another model file is ignored."""

    setting: GateSetting


class CasesTo(msgspec.Struct, frozen=True, tag=True):
    """Put frames that the large model is to see into the ring whose descriptors come along.

    Without descriptors nobody takes any more.
    """


class Stop(msgspec.Struct, frozen=True, tag=True):
    """Finish the frame in hand and exit 0."""


ToWorker = Attach | Detach | AnswerTo | SetGate | CasesTo | Stop


class Progress(msgspec.Struct, frozen=True, tag=True):
    """One real step of loading."""

    line: str


class Ready(msgspec.Struct, frozen=True, tag=True):
    """Loaded, self-tested and warmed; `can_serve` is False for one that cannot leave its low priority.

    `engine` is the bundle's word for its runtime; `inputs` and `outputs` are what the runtime says of them.
    `model_sha256` is that of the model file alone, to which a gate's setting is bound.
    """

    model: ModelRef
    task: str
    accelerator: AcceleratorReport
    self_test: SelfTest
    can_serve: bool = True
    engine: str = ""
    inputs: tuple[TensorInfo, ...] = ()
    outputs: tuple[TensorInfo, ...] = ()
    bundle_bytes: int = 0
    model_sha256: str = ""


class Fatal(msgspec.Struct, frozen=True, tag=True):
    """This model cannot be served; trying the same again is useless."""

    exit_code: int
    cause: str
    cure: str | None = None


class Detached(msgspec.Struct, frozen=True, tag=True):
    """The camera's ring is no longer used; every result up to `taken` has been sent before this."""

    camera: str
    taken: int


FromWorker = Progress | Ready | Fatal | Detached


class Answers(msgspec.Struct, frozen=True, tag=True):
    """Outcomes of frames for whoever gave them, by `Result.seq`; a dropped frame is a failed result."""

    results: tuple[Result, ...]


class Answered(msgspec.Struct, frozen=True, tag=True):
    """A frame's answer, or its failure; `answered_ns` is CLOCK_MONOTONIC when it left the worker.

    `shadow`: nobody asked, it is for comparison; `waited_ns` of its time were spent waiting for a CPU.
    `tensor`: the frame was somebody's own input tensor, whose answer says nothing of how good the model is.
    `told`: whoever gave the frame has the answer already. `asked`: why the large model is to be
    asked about it, unless an `Unasked` follows. `use`: an earlier answer given again, or the model's to see
    whether that would have been `wrong`. `unsure`: what the gate thinks of it, None where none judged.
    """

    result: Result
    answered_ns: int
    shadow: bool = False
    waited_ns: int = 0
    tensor: bool = False
    told: bool = False
    asked: Reason | None = None
    use: Use = Use.ANEW
    wrong: bool = False
    unsure: bool | None = None


class Unasked(msgspec.Struct, frozen=True, tag=True):
    """A frame that was to be asked about stays: there is no room for it on its way."""

    camera: str
    seq: int


class Dropped(msgspec.Struct, frozen=True, tag=True):
    """A frame that was taken from the ring and not inferred."""

    camera: str
    seq: int
    cause: DropCause


FromWorkerResults = Answered | Dropped | Unasked
