"""The whole agent with its HTTP door in this process, its children real: put together as `run` does it."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace
from tests.integration.door.asking import Answer, ask, binary_request
from tests.stubs.running import plan
from tests.stubs.waiting import until

from vedette.api.door_messages import DOOR, DoorSpec
from vedette.runtime.compose import build_agent
from vedette.runtime.daemon import Stopping
from vedette.runtime.plan import DOOR_STALL_S, door_plan

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

    from typing_extensions import Self

    from vedette.engine.messages import WorkerSpec
    from vedette.errors import VedetteError
    from vedette.runtime.camera import Camera
    from vedette.runtime.plan import CameraPlan
    from vedette.telemetry.ledger import CameraCounts

MODEL = "tiny"
SIDE = 8
INPUT = {"name": "stub_input", "datatype": "FP32", "shape": [1, 3, SIDE, SIDE]}


def picture_call(value: int = 128, **fields: Any) -> tuple[bytes, dict[str, str]]:  # noqa: ANN401 - JSON
    """Body and headers of a request with a small picture of one colour."""
    entry = {"name": "image", "datatype": "UINT8", "shape": [SIDE, SIDE, 3]}
    return binary_request([(entry, bytes([value]) * (SIDE * SIDE * 3))], **fields)


class OpenedDoor:
    """`with OpenedDoor(folder, worker) as agent: …`; leaving stops it and checks the books."""

    def __init__(
        self,
        folder: Path,
        worker: WorkerSpec,
        *cameras: CameraPlan,
        listen: str = "127.0.0.1:0",
        stall_s: float = DOOR_STALL_S,
        **changes: Any,  # noqa: ANN401 - fields of DoorSpec and RunPlan
    ) -> None:
        socket = folder / "control.sock"
        known = {key: changes.pop(key) for key in tuple(changes) if key in DoorSpec.__struct_fields__}
        known = {"slot_bytes": 3 * 640 * 480, "slots": 4, **known}
        spec = DoorSpec(listen=listen, control_socket=str(socket), **known)
        self.results = folder / "results.jsonl"
        self.said: list[str] = []
        self.error: VedetteError | None = None
        self.crash: BaseException | None = None
        self.stopping = Stopping()
        door = door_plan(spec)
        door = replace(door, source=replace(door.source, stall_s=stall_s))
        run_plan = plan(worker, *cameras, door, control_socket=socket, results_to=self.results, **changes)
        self.daemon = build_agent(run_plan, self.stopping, say=self.said.append).daemon
        self._thread = threading.Thread(target=self._run, name="daemon")

    def _run(self) -> None:
        try:
            self.error = self.daemon.run()
        except BaseException as error:  # noqa: BLE001 - the test looks at it
            self.crash = error

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        if kind is None:
            self.check()

    def stop(self, *, within_s: float = 60.0) -> None:
        """Ask for the end and wait for it."""
        self.stopping.ask("the test is over")
        self._thread.join(within_s)
        assert not self._thread.is_alive(), f"it did not end within {within_s:g} s; it said {self.said}"

    @property
    def running(self) -> bool:
        """The daemon has not ended by itself."""
        return self._thread.is_alive()

    def check(self) -> None:
        """Every frame has one outcome, and no answer of the door's is among the lines."""
        assert self.crash is None, repr(self.crash)
        assert self.daemon.ledger.imbalance() == {}
        assert all(counts.in_flight == 0 for counts in self.daemon.ledger.snapshot().cameras.values())
        assert DOOR not in {line["camera"] for line in self.lines()}

    def lines(self) -> list[dict[str, Any]]:
        """What was written for the cameras."""
        return [json.loads(line) for line in self.results.read_text(encoding="utf-8").splitlines()]

    def answers_of(self, camera: str) -> int:
        """Lines of one camera that hold an answer."""
        return sum(line["camera"] == camera and "failed" not in line for line in self.lines())

    def until_answers(self, camera: str, more: int = 1) -> None:
        """Wait until a camera got that many more answers."""
        before = self.answers_of(camera)
        until(lambda: self.answers_of(camera) >= before + more, f"answers of {camera}; said {self.said}")

    @property
    def door(self) -> Camera:
        """The door as the daemon sees it."""
        return next(camera for camera in self.daemon.cameras if camera.name == DOOR)

    @property
    def url(self) -> str:
        """Where to ask; after a restart with a port of its own, somewhere else."""
        info = self.door.info
        return "" if info is None else info.description.removeprefix("HTTP on ")

    def pid(self) -> int:
        """The door's process."""
        child = self.door.child
        assert child is not None
        return child.pid

    def worker_pid(self) -> int:
        """The process of the worker that serves."""
        worker = self.daemon.generation.worker
        assert worker is not None
        return worker.child.pid

    def until_ready(self) -> None:
        """Wait until the door takes pictures."""
        until(self._ready, f"the door is ready; said {self.said}")

    def _ready(self) -> bool:
        try:
            return bool(self.url) and ask(self.url, "/readyz").status == 200
        except OSError:
            return False

    def infer(self, body: bytes, headers: dict[str, str]) -> Answer:
        """One inference on a connection of its own."""
        return ask(self.url, f"/v2/models/{MODEL}/infer", body=body, headers=headers)

    def counts(self) -> CameraCounts:
        """What became of the door's frames."""
        self.daemon.observe_rings()
        return self.daemon.ledger.snapshot().cameras[DOOR]
