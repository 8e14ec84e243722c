"""What every engine owes its worker, asked of the stub, ONNX Runtime and LiteRT alike."""

from __future__ import annotations

import contextlib
import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pytest
from tests.stubs.tiny_models import CHANNELS, CLASSES, SIZE, reference, tiny_onnx, tiny_tflite

from vedette.engine.port import Engine, EngineRequest, OnFallback
from vedette.engine.registry import resolve
from vedette.errors import BundleError, UnavailableError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

TASKS = Path("/proc/self/task")


class Kind(msgspec.Struct, frozen=True):
    """One adapter under test, and what its model wants."""

    name: str
    factory: str
    shape: tuple[int, ...]
    suffix: str
    module: str | None
    options: dict[str, str] = {}

    def model(self) -> bytes:
        if self.name == "onnx":
            return tiny_onnx()
        return tiny_tflite() if self.name == "litert" else b""


KINDS = (
    Kind(
        name="stub",
        factory="tests.stubs.engines:open_stub",
        shape=(1, SIZE, SIZE, CHANNELS),
        suffix=".stub",
        module=None,
        options={"input": "1x8x8x3:float32", "outputs": "1x4:float32", "answer": "echo"},
    ),
    Kind(name="onnx", factory="onnx", shape=(1, CHANNELS, SIZE, SIZE), suffix=".onnx", module="onnxruntime"),
    Kind(
        name="litert",
        factory="litert",
        shape=(1, SIZE, SIZE, CHANNELS),
        suffix=".tflite",
        module="ai_edge_litert",
    ),
)
REAL = KINDS[1:]


def by_name(kind: Kind) -> str:
    return kind.name


def request_for(kind: Kind, folder: Path, *, threads: int = 1, content: bytes | None = None) -> EngineRequest:
    if kind.module is not None and importlib.util.find_spec(kind.module) is None:
        pytest.skip(f"{kind.module} is not installed")
    path = folder / f"model{kind.suffix}"
    path.write_bytes(kind.model() if content is None else content)
    return EngineRequest(
        model_path=path,
        model_sha256="0" * 64,
        accelerators=("cpu",),
        on_fallback=OnFallback.FAIL,
        threads=threads,
        cache_dir=None,
        input_shape=kind.shape,
        options=kind.options,
    )


@contextlib.contextmanager
def opened(kind: Kind, folder: Path, *, threads: int = 1) -> Iterator[Engine]:
    engine = resolve(kind.factory)(request_for(kind, folder, threads=threads), lambda _line: None)
    try:
        yield engine
    finally:
        engine.close()


def picture(kind: Kind, *colour: float) -> NDArray[np.float32]:
    nhwc = np.broadcast_to(np.array(colour, np.float32), (1, SIZE, SIZE, CHANNELS))
    return nhwc if kind.shape[-1] == CHANNELS else nhwc.transpose(0, 3, 1, 2)


@pytest.mark.parametrize("kind", KINDS, ids=by_name)
def test_input_array_has_the_shape_asked_for_and_is_contiguous(kind: Kind, tmp_path: Path) -> None:
    """The preprocessor writes straight into it, so layout and type are a promise."""
    with opened(kind, tmp_path) as engine:
        assert engine.input_array.shape == engine.inputs[0].shape == kind.shape
        assert engine.input_array.dtype == np.dtype(engine.inputs[0].dtype)
        assert engine.input_array.flags.c_contiguous
        assert engine.input_array.flags.writeable


@pytest.mark.parametrize("kind", KINDS, ids=by_name)
def test_outputs_are_as_described_and_repeat(kind: Kind, tmp_path: Path) -> None:
    """The same picture gives the same bytes, of the shape and type that were announced."""
    with opened(kind, tmp_path) as engine:
        engine.input_array[...] = picture(kind, 0.9, 0.2, 0.1)
        first, second = engine.run(), engine.run()
        assert [output.shape for output in first] == [(1, CLASSES)]
        assert [str(output.dtype) for output in first] == [info.dtype for info in engine.outputs]
        assert engine.outputs[0].shape == (1, CLASSES)
        for one, other in zip(first, second, strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.engine
@pytest.mark.parametrize("kind", REAL, ids=by_name)
def test_answers_are_the_models(kind: Kind, tmp_path: Path) -> None:
    """Computed by hand in NumPy and by the runtime, the scores are the same."""
    colour = (0.1, 0.7, 0.3)
    with opened(kind, tmp_path) as engine:
        engine.input_array[...] = picture(kind, *colour)
        expected = reference(np.broadcast_to(np.array(colour, np.float32), (SIZE, SIZE, CHANNELS)))
        np.testing.assert_allclose(engine.run()[0].astype(np.float32), expected, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS, ids=by_name)
def test_earlier_answers_never_change(kind: Kind, tmp_path: Path) -> None:
    """Case 11: what left the engine is the caller's own, whatever runs afterwards, even after the close."""
    with opened(kind, tmp_path) as engine:
        kept: list[tuple[NDArray[np.generic], NDArray[np.generic]]] = []
        for step in range(20):
            engine.input_array[...] = picture(kind, step / 20, 0.2, 0.5)
            answer = engine.run()[0]
            kept.append((answer, answer.copy()))
    for answer, copy in kept:
        np.testing.assert_array_equal(answer, copy)
    assert not np.array_equal(kept[0][1], kept[-1][1])


@pytest.mark.parametrize("kind", KINDS, ids=by_name)
def test_a_returned_array_may_be_written(kind: Kind, tmp_path: Path) -> None:
    """The caller owns it: writing into an answer does not reach the engine."""
    with opened(kind, tmp_path) as engine:
        engine.input_array[...] = picture(kind, 0.5, 0.5, 0.5)
        first = engine.run()[0]
        expected = first.copy()
        first[...] = 99
        np.testing.assert_array_equal(engine.run()[0], expected)


@pytest.mark.parametrize("kind", KINDS, ids=by_name)
def test_close_twice_then_run_is_an_error_not_an_answer(kind: Kind, tmp_path: Path) -> None:
    """Closing is idempotent; a closed engine says so."""
    with opened(kind, tmp_path) as engine:
        engine.close()
        engine.close()
        with pytest.raises(UnavailableError, match="closed"):
            engine.run()


@pytest.mark.parametrize("kind", KINDS, ids=by_name)
def test_the_report_says_what_is_in_effect(kind: Kind, tmp_path: Path) -> None:
    """Asked for the CPU, it runs there, is not degraded and tells how that is known."""
    with opened(kind, tmp_path) as engine:
        report = engine.report
        assert (report.asked, report.effective, report.degraded) == (("cpu",), "cpu", False)
        assert report.skipped == ()
        assert report.evidence
        assert report.threads == 1
        # ONNX Runtime tells node placement from 1.24 on; an older one is known by its session alone.
        assert sum(report.nodes.values()) >= 1 or report.evidence == "the session lists cpu"


@pytest.mark.engine
@pytest.mark.parametrize("kind", REAL, ids=by_name)
@pytest.mark.skipif(not TASKS.is_dir(), reason="counting native threads needs Linux")
def test_threads_are_as_many_as_asked_for(kind: Kind, tmp_path: Path) -> None:
    """Case 3: one thread starts no pool, three start two helpers beside the caller.

    Other threads of this process may come and go meanwhile; the engine's come with it and go with it.
    """

    def helpers(threads: int) -> int:
        before = set(TASKS.iterdir())
        with opened(kind, tmp_path, threads=threads) as engine:
            engine.run()
            assert engine.report.threads == threads
            during = set(TASKS.iterdir())
        return len(during - before - set(TASKS.iterdir()))

    assert [helpers(1), helpers(3)] == [0, 2]


@pytest.mark.engine
@pytest.mark.parametrize("kind", REAL, ids=by_name)
@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9])
def test_a_truncated_file_is_a_bundle_error(kind: Kind, share: float, tmp_path: Path) -> None:
    """A file that was cut is refused with its name, never loaded half."""
    whole = kind.model()
    request = request_for(kind, tmp_path, content=whole[: int(len(whole) * share)])
    with pytest.raises(BundleError, match="model"):
        resolve(kind.factory)(request, lambda _line: None)


@pytest.mark.engine
@pytest.mark.parametrize("kind", REAL, ids=by_name)
@pytest.mark.parametrize("content", [b"\x89PNG\r\n\x1a\n" + bytes(64), b"version: 1\n" * 9, bytes(4096)])
def test_a_file_of_another_kind_is_a_bundle_error(kind: Kind, content: bytes, tmp_path: Path) -> None:
    """A picture, a text or zeros in the model's place."""
    with pytest.raises(BundleError):
        resolve(kind.factory)(request_for(kind, tmp_path, content=content), lambda _line: None)


@pytest.mark.engine
@pytest.mark.parametrize("kind", REAL, ids=by_name)
def test_a_missing_file_is_a_bundle_error(kind: Kind, tmp_path: Path) -> None:
    """The path is named."""
    request = request_for(kind, tmp_path)
    request.model_path.unlink()
    with pytest.raises(BundleError, match=request.model_path.name):
        resolve(kind.factory)(request, lambda _line: None)


@pytest.mark.engine
@pytest.mark.parametrize("kind", REAL, ids=by_name)
def test_another_shape_than_the_models_is_a_bundle_error(kind: Kind, tmp_path: Path) -> None:
    """The message names both shapes, before any frame is fed."""
    request = msgspec.structs.replace(request_for(kind, tmp_path), input_shape=(1, 9, 9, 9))
    with pytest.raises(BundleError, match=r"\[1, 9, 9, 9\]"):
        resolve(kind.factory)(request, lambda _line: None)


@pytest.mark.engine
@pytest.mark.parametrize("kind", REAL, ids=by_name)
def test_twenty_reloads_do_not_grow(kind: Kind, tmp_path: Path) -> None:
    """Case 4: after the first few loads, resident memory stays where it is."""
    statm = Path("/proc/self/statm")
    if not statm.is_file():
        pytest.skip("resident memory is read from /proc")
    pages: list[int] = []
    for _ in range(20):
        with opened(kind, tmp_path) as engine:
            engine.run()
        pages.append(int(statm.read_text(encoding="ascii").split()[1]))
    assert (pages[-1] - pages[5]) * 4096 < 8 << 20
