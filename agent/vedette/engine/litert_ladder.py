"""Opens a TFLite model on one accelerator at a time, each on a fresh interpreter (casebook 8)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vedette.bundle.tflitefile import is_tflite
from vedette.engine.accelerator import CPU, GPU, Placement, RungRefusedError
from vedette.engine.failures import is_allocation_failure, reason
from vedette.engine.litert_delegate import KNOWN_LIBRARIES, check_library
from vedette.engine.litert_gpu import compile_for_gpu
from vedette.engine.litert_graph import count_delegated
from vedette.engine.litert_interpreter import InterpreterEngine, declared_axes
from vedette.engine.long_step import watched
from vedette.engine.shapes import fix_shape
from vedette.errors import BundleError, ConfigError, OutOfMemoryError, UnavailableError, VedetteError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from vedette.engine.litert import Runtime
    from vedette.engine.port import Engine, EngineRequest, Progress

XNNPACK = "xnnpack"
_COMPILED_RUNGS = (GPU, "webgpu")


class Opener:
    """Opens the model on one rung, from scratch each time."""

    def __init__(self, runtime: Runtime, request: EngineRequest, progress: Progress) -> None:
        check_options(request.options)
        _check_identifier(request.model_path)
        self._runtime = runtime
        self._request = request
        self._progress = progress

    def attempt(self, rung: str) -> Placement[Engine]:
        """Open on this rung.

        Raises:
            RungRefusedError: It does not run there; the text says why.
            BundleError: It is the file that is wrong.
            OutOfMemoryError: It does not fit, even on the CPU.
        """
        with watched(f"loading on {rung}", self._progress):
            library = self._request.options.get(f"delegate.{rung}", KNOWN_LIBRARIES.get(rung))
            if library is not None:
                return self._on_delegate(rung, library)
            if rung in (CPU, XNNPACK):
                return self._on_cpu(rung)
            if rung in _COMPILED_RUNGS:
                return self._on_gpu(rung)
        raise RungRefusedError(
            f"{self._runtime.name} has no {rung} of its own; engine.options delegate.{rung} may name one"
        )

    def _on_cpu(self, rung: str) -> Placement[Engine]:
        plain = self._request.options.get("xnnpack") == "off"
        if plain and rung == XNNPACK:
            raise RungRefusedError("engine.options turns xnnpack off")
        extra = {"experimental_op_resolver_type": self._runtime.plain_resolver} if plain else {}
        interpreter = self._prepare(self._construct(**extra))
        delegated, total = self._count(interpreter)
        if rung == XNNPACK and total and not delegated:
            raise RungRefusedError(f"{self._runtime.name} gave XNNPACK no node of this model")
        engine = self._engine(interpreter, rung)
        nodes = _split(XNNPACK, delegated, CPU, total)
        return Placement(engine, rung, nodes, "delegate nodes in the interpreter's graph")

    def _on_gpu(self, rung: str) -> Placement[Engine]:
        module = self._runtime.compiled_model
        if module is None:
            raise RungRefusedError(
                f"{self._runtime.name} {self._runtime.version} has no GPU support of its own"
            )
        # The interpreter reads what CompiledModel does not tell (quantisation), and finds a damaged file.
        reader = self._engine(self._prepare(self._construct()), rung)
        described = (reader.inputs, reader.outputs)
        reader.close()
        engine, evidence = compile_for_gpu(module, self._request.model_path, described, self._request.options)
        return Placement(engine, rung, {}, evidence)

    def _on_delegate(self, rung: str, library: str) -> Placement[Engine]:
        check_library(library)
        prefix = f"delegate.{rung}."
        options = {
            key[len(prefix) :]: value
            for key, value in self._request.options.items()
            if key.startswith(prefix)
        }
        try:
            delegate = self._runtime.load_delegate(library, options)
            interpreter = self._runtime.interpreter(
                model_path=str(self._request.model_path),
                num_threads=self._request.threads,
                experimental_delegates=[delegate],
            )
            taken, _ = self._count(interpreter)  # before XNNPACK takes what is left
            self._prepare(interpreter)
            engine = InterpreterEngine(interpreter)
        except Exception as error:
            # Even a BundleError: whose fault it is, the next rung's plain interpreter will tell.
            cause = error.__cause__ if isinstance(error, VedetteError) and error.__cause__ else error
            raise RungRefusedError(f"the delegate {library} failed: {reason(cause)}") from error
        _, total = self._count(interpreter)
        if total and not taken:
            engine.close()
            raise RungRefusedError(f"the delegate {library} loads, but takes no node of this model")
        return Placement(
            engine, rung, _split(rung, taken, CPU, total), "delegate nodes in the interpreter's graph"
        )

    def _construct(self, **extra: Any) -> Any:  # noqa: ANN401 - the wheel has no types
        try:
            return self._runtime.interpreter(
                model_path=str(self._request.model_path), num_threads=self._request.threads, **extra
            )
        except Exception as error:
            raise self._file_failure(error) from error

    def _prepare(self, interpreter: Any) -> Any:  # noqa: ANN401 - the wheel has no types
        """Fix the input's shape and allocate; here a runtime meets unknown operators (casebook 5)."""
        details = interpreter.get_input_details()
        if len(details) != 1:
            names = ", ".join(str(detail["name"]) for detail in details) or "none"
            raise BundleError(f"the model has {len(details)} inputs ({names}); this agent feeds one picture")
        shape = fix_shape(details[0]["name"], declared_axes(details[0]), self._request.input_shape)
        try:
            if shape != tuple(int(size) for size in details[0]["shape"]):
                interpreter.resize_tensor_input(details[0]["index"], list(shape), strict=True)
            interpreter.allocate_tensors()
        except Exception as error:
            raise self._file_failure(error) from error
        return interpreter

    def _engine(self, interpreter: Any, rung: str) -> InterpreterEngine:  # noqa: ANN401 - the wheel has no types
        try:
            return InterpreterEngine(interpreter)
        except OutOfMemoryError:
            raise
        except UnavailableError as error:
            raise RungRefusedError(f"the first run on {rung} failed: {error.cause}") from error

    def _file_failure(self, error: Exception) -> BundleError | OutOfMemoryError:
        if is_allocation_failure(error) and "model allocation is null" not in str(error):
            return OutOfMemoryError(f"the model does not fit into memory: {reason(error)}")
        return BundleError(
            f"{self._runtime.name} {self._runtime.version} does not take {self._request.model_path.name}: "
            f"{reason(error)}",
            cure="copy the file again if damaged; else install a newer runtime or convert the model anew",
        )

    @staticmethod
    def _count(interpreter: Any) -> tuple[int, int]:  # noqa: ANN401 - the wheel has no types
        """Delegated and all nodes; zeros where the runtime does not list them (it is no public promise)."""
        listed = getattr(interpreter, "_get_ops_details", None)
        return (0, 0) if listed is None else count_delegated(listed())


def check_options(options: Mapping[str, str]) -> None:
    """Refuse options that nobody would read, so that a typing mistake is not silence.

    Raises:
        ConfigError: A key is not known.
    """
    for key, value in options.items():
        known = key in ("xnnpack", "gpu.enforce_f32") or key.startswith("delegate.")
        if not known:
            raise ConfigError(
                f"engine.options: {key!r} is not known to the litert engine",
                cure="use delegate.<name>, delegate.<name>.<option>, xnnpack or gpu.enforce_f32",
            )
        allowed = {"xnnpack": ("on", "off"), "gpu.enforce_f32": ("true", "false")}.get(key)
        if allowed is not None and value not in allowed:
            raise ConfigError(f"engine.options: {key} is {' or '.join(allowed)}, not {value!r}")


def _check_identifier(path: Path) -> None:
    try:
        with path.open("rb") as file:
            head = file.read(8)
    except OSError as error:
        raise BundleError(f"the model file {path.name} cannot be read: {error}") from error
    if not is_tflite(head):
        raise BundleError(
            f"{path.name} is not a TFLite file",
            cure="check `file` and `engine` in model.yaml, and copy it again",
        )


def _split(name: str, taken: int, rest: str, total: int) -> dict[str, int]:
    """Nodes per accelerator, without the empty ones."""
    return {key: count for key, count in ((name, taken), (rest, total - taken)) if count}
