"""Loading and sealing a bundle's folder: what is checked, in which order, and what the messages say."""

from __future__ import annotations

import hashlib
import os
import shutil
import socket
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.bundle.workshop import external_model, onnx_model, spec_yaml, write_bundle, write_sums

from vedette.bundle import disk
from vedette.bundle.folder import load_bundle, seal
from vedette.errors import BundleError

if TYPE_CHECKING:
    from pathlib import Path


def refused(root: Path) -> BundleError:
    """The error of loading a bundle; it must say what to do as well."""
    with pytest.raises(BundleError) as caught:
        load_bundle(root)
    assert caught.value.cure
    return caught.value


def test_a_good_bundle_tells_what_it_holds(tmp_path: Path) -> None:
    """Every field of the loaded bundle is pinned."""
    root = write_bundle(tmp_path / "tiny")
    bundle = load_bundle(root)
    assert bundle.root == root.resolve()
    assert bundle.spec.name == "tiny"
    assert bundle.labels == ("cat", "dog", "owl")
    assert bundle.model_path == root / "tiny.onnx"
    assert bundle.model_sha256 == hashlib.sha256((root / "tiny.onnx").read_bytes()).hexdigest()
    assert set(bundle.files) == {"model.yaml", "tiny.onnx", "labels.txt"}
    assert bundle.sha256 == hashlib.sha256((root / "SHA256SUMS").read_bytes()).hexdigest()
    assert bundle.onnx is not None
    assert bundle.onnx.opsets == {"": 17}


def test_the_digest_does_not_depend_on_how_the_list_is_written(tmp_path: Path) -> None:
    """Other order, binary marks and capital digits are the same bundle."""
    root = write_bundle(tmp_path / "tiny")
    before = load_bundle(root).sha256
    lines = (root / "SHA256SUMS").read_text().splitlines()
    rewritten = [f"{line[:64].upper()} *{line[66:]}" for line in reversed(lines)]
    (root / "SHA256SUMS").write_text("\n".join(rewritten))
    assert load_bundle(root).sha256 == before


def test_sealing_writes_what_sha256sum_checks(tmp_path: Path) -> None:
    """`seal` gives the digest that loading gives, leaves no temporary file, and coreutils agrees."""
    root = write_bundle(tmp_path / "tiny", {"weights/part one.bin": b"1"})
    (root / "SHA256SUMS").unlink()
    digest = seal(root)
    assert digest == load_bundle(root).sha256
    assert not [path for path in root.iterdir() if path.name.startswith(".")]
    tool = shutil.which("sha256sum")
    if tool is None:
        pytest.skip("coreutils is not installed")
    done = subprocess.run(
        [tool, "-c", "--strict", "SHA256SUMS"], cwd=root, check=False, capture_output=True, timeout=30
    )
    assert done.returncode == 0
    assert done.stdout.count(b": OK") == 4


def test_sealing_twice_gives_the_same_list(tmp_path: Path) -> None:
    """The list is no part of itself."""
    root = write_bundle(tmp_path / "tiny")
    first = seal(root)
    content = (root / "SHA256SUMS").read_bytes()
    assert seal(root) == first
    assert (root / "SHA256SUMS").read_bytes() == content


def test_a_power_cut_while_sealing_leaves_the_old_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Case 35: the disk fails at fsync; the list before stays whole and no leftover stays behind."""
    root = write_bundle(tmp_path / "tiny")
    before = (root / "SHA256SUMS").read_bytes()

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(BundleError, match="No space left"):
        seal(root)
    assert (root / "SHA256SUMS").read_bytes() == before
    assert sorted(path.name for path in root.iterdir()) == [
        "SHA256SUMS",
        "labels.txt",
        "model.yaml",
        "tiny.onnx",
    ]


BROKEN_SPEC = b"schema: 1\nname: [\n"


def test_hashes_come_before_schema(tmp_path: Path) -> None:
    """A changed model and a broken model.yaml: the hash is reported."""
    root = write_bundle(tmp_path / "tiny", {"model.yaml": BROKEN_SPEC})
    (root / "tiny.onnx").write_bytes(b"changed")
    assert "SHA-256" in refused(root).cause


def test_schema_comes_before_files(tmp_path: Path) -> None:
    """An unknown key and a model file that is not there: the key is reported."""
    root = write_bundle(tmp_path / "tiny", file="absent.onnx", colour="rgb")
    cause = refused(root).cause
    assert "colour" in cause
    assert "absent" not in cause


def test_files_come_before_the_engine(tmp_path: Path) -> None:
    """Too few labels and an operator domain nobody has: the labels are reported."""
    alien = onnx_model(domain="acme", imports=(("acme", 1),)).SerializeToString()
    root = write_bundle(tmp_path / "tiny", {"tiny.onnx": alien, "labels.txt": b"cat\n"})
    assert "labels.txt" in refused(root).cause
    (root / "labels.txt").write_bytes(b"cat\ndog\nowl\n")
    write_sums(root)
    assert "acme" in refused(root).cause


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        (lambda root: (root / "SHA256SUMS").unlink(), ["SHA256SUMS", "missing"]),
        (lambda root: (root / "SHA256SUMS").write_text(""), ["SHA256SUMS", "lists no file"]),
        (lambda root: (root / "SHA256SUMS").write_bytes(b"\xff\xfe"), ["SHA256SUMS", "UTF-8"]),
        (lambda root: (root / "SHA256SUMS").write_bytes(b"\0" * 90), ["SHA256SUMS line 1"]),
        (lambda root: (root / "labels.txt").unlink(), ["'labels.txt'", "missing"]),
        (lambda root: (root / "tiny.onnx").write_bytes(b""), ["'tiny.onnx'", "SHA-256"]),
        (lambda root: (root / "extra.bin").write_bytes(b"1"), ["'extra.bin'", "not listed"]),
        (lambda root: (root / ".DS_Store").write_bytes(b"1"), ["'.DS_Store'", "not listed"]),
    ],
)
def test_every_difference_from_the_list_is_named(tmp_path: Path, harm: object, words: list[str]) -> None:
    """Case 35: a missing, emptied, added or NUL-filled file is told apart, and `sha256sum` is the cure."""
    root = write_bundle(tmp_path / "tiny")
    assert callable(harm)
    harm(root)
    error = refused(root)
    assert all(word in error.cause for word in words)
    assert "sha256sum" in str(error.cure)


def test_all_differences_are_told_at_once(tmp_path: Path) -> None:
    """One run names the changed, the missing and the unlisted file."""
    root = write_bundle(tmp_path / "tiny")
    (root / "tiny.onnx").write_bytes(b"x")
    (root / "labels.txt").unlink()
    (root / "more.txt").write_text("x")
    cause = refused(root).cause
    assert all(name in cause for name in ("tiny.onnx", "labels.txt", "more.txt"))


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("../outside", ".."),
        ("/etc/hostname", "absolute"),
        ("a\\b", "backslash"),
        ("a//b", "normalised"),
        ("./a", "normalised"),
        ("a/../../b", ".."),
        ("C:evil", ":"),
        ("a\x00b", "NUL"),
        ("SHA256SUMS", "itself"),
        ("x" * 300, "255 bytes"),
    ],
)
def test_the_list_cannot_point_outside(tmp_path: Path, name: str, word: str) -> None:
    """A line with an escaping or unportable name is refused with its number, and nothing is opened."""
    root = write_bundle(tmp_path / "tiny")
    with (root / "SHA256SUMS").open("a") as file:
        file.write(f"{'0' * 64}  {name}\n")
    cause = refused(root).cause
    assert "line 4" in cause
    assert word in cause


def test_a_file_listed_twice_is_refused(tmp_path: Path) -> None:
    """Two lines for one file could disagree."""
    root = write_bundle(tmp_path / "tiny")
    sums = root / "SHA256SUMS"
    sums.write_text(sums.read_text() + sums.read_text().splitlines()[0] + "\n")
    assert "twice" in refused(root).cause


@pytest.mark.parametrize("name", ["../model.onnx", "/model.onnx", "sub\\model.onnx", "model\0.onnx", ""])
@pytest.mark.parametrize("key", ["file", "sidecars", "golden", "calibration", "output__labels__file"])
def test_model_yaml_cannot_point_outside(tmp_path: Path, key: str, name: str) -> None:
    """Every key that names a file refuses the same escapes and says which key it was."""
    (tmp_path / "model.onnx").write_bytes(onnx_model().SerializeToString())
    changes: dict[str, Any] = {key: [name] if key == "sidecars" else name}
    root = write_bundle(tmp_path / "tiny", **changes)
    assert key.replace("__", ".") in refused(root).cause


def test_links_that_leave_the_folder_are_refused(tmp_path: Path) -> None:
    """A link to a good file outside is still a file that nobody shipped."""
    root = write_bundle(tmp_path / "tiny")
    outside = tmp_path / "outside.onnx"
    shutil.move(root / "tiny.onnx", outside)
    (root / "tiny.onnx").symlink_to(outside)
    assert "leaves the bundle's folder" in refused(root).cause


def test_links_inside_and_to_the_folder_are_fine(tmp_path: Path) -> None:
    """A "current" link to the bundle works, and the loaded bundle does not move with it."""
    root = write_bundle(tmp_path / "v1", {"files/a.onnx": onnx_model().SerializeToString()})
    (root / "tiny.onnx").unlink()
    (root / "tiny.onnx").symlink_to("files/a.onnx")
    (tmp_path / "current").symlink_to("v1")
    assert load_bundle(tmp_path / "current").model_path == root.resolve() / "tiny.onnx"


def test_a_pipe_or_socket_in_the_folder_does_not_hang(tmp_path: Path) -> None:
    """Opening a FIFO would wait for a writer for ever."""
    root = write_bundle(tmp_path / "tiny")
    os.mkfifo(root / "pipe")
    assert "neither a file nor a folder" in refused(root).cause
    (root / "pipe").unlink()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(root / "s"))
        assert "neither a file nor a folder" in refused(root).cause


def test_a_fifo_put_in_place_of_a_file_is_seen_when_opened(tmp_path: Path) -> None:
    """The type is checked on the open descriptor, not only when the folder was listed."""
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(BundleError, match="not a plain file"):
        disk.hash_file(tmp_path.resolve(), "pipe")


@pytest.mark.parametrize("where", ["absent", "file"])
def test_no_folder_is_no_bundle(tmp_path: Path, where: str) -> None:
    """A path to nothing or to a file says so."""
    (tmp_path / "file").write_text("x")
    assert where in refused(tmp_path / where).cause


def test_a_missing_model_yaml_is_named(tmp_path: Path) -> None:
    """A sealed folder without a description."""
    root = write_bundle(tmp_path / "tiny")
    (root / "model.yaml").unlink()
    write_sums(root)
    assert "model.yaml: missing" in refused(root).cause


def test_a_file_named_but_not_shipped_is_refused(tmp_path: Path) -> None:
    """The golden inputs are named, sealed without them."""
    cause = refused(write_bundle(tmp_path / "tiny", golden="golden.npz")).cause
    assert "golden: 'golden.npz' is not in the bundle" in cause


def test_an_empty_model_is_refused_before_it_is_parsed(tmp_path: Path) -> None:
    """Case 35: a zero-byte model, sealed by mistake."""
    assert "tiny.onnx: 0 bytes" in refused(write_bundle(tmp_path / "tiny", {"tiny.onnx": b""})).cause


def test_a_label_file_of_megabytes_is_refused(tmp_path: Path) -> None:
    """Sizes are bounded by what each file is for."""
    assert "labels.txt" in refused(write_bundle(tmp_path / "tiny", {"labels.txt": b"x\n" * (1 << 20)})).cause


def test_weights_beside_the_model_must_be_sidecars(tmp_path: Path) -> None:
    """An ONNX file with external data loads when every file of it is named, and not otherwise."""
    files = {
        "net/tiny.onnx": external_model("w.bin", "more/w2.bin"),
        "net/w.bin": b"1",
        "net/more/w2.bin": b"2",
    }
    root = write_bundle(
        tmp_path / "a", files, file="net/tiny.onnx", sidecars=["net/w.bin", "net/more/w2.bin"]
    )
    loaded = load_bundle(root).onnx
    assert loaded is not None
    assert loaded.external_files == ("w.bin", "more/w2.bin")
    error = refused(write_bundle(tmp_path / "b", files, file="net/tiny.onnx", sidecars=["net/w.bin"]))
    assert "'more/w2.bin'" in error.cause
    assert "net/more/w2.bin" in str(error.cure)


@pytest.mark.parametrize("location", ["../secret", "/etc/passwd", "a\\..\\b", "*/_ORT_MEM_ADDR_/*"])
def test_external_weights_cannot_escape(tmp_path: Path, location: str) -> None:
    """A path or a raw memory address instead of a file beside the model."""
    root = write_bundle(tmp_path / "tiny", {"tiny.onnx": external_model(location)})
    assert repr(location) in refused(root).cause


def test_a_tflite_file_for_the_onnx_engine_is_told_apart(tmp_path: Path) -> None:
    """The two formats are recognised by content, whatever the file is called."""
    tflite = b"\x1c\0\0\0TFL3" + bytes(64)
    assert "is a TFLite file" in refused(write_bundle(tmp_path / "a", {"tiny.onnx": tflite})).cause
    assert "not a TFLite file" in refused(write_bundle(tmp_path / "b", engine="litert")).cause


def test_a_file_changed_after_loading_is_not_read(tmp_path: Path) -> None:
    """What is read later is verified again."""
    bundle = load_bundle(write_bundle(tmp_path / "tiny"))
    assert bundle.read("labels.txt", 100) == b"cat\ndog\nowl\n"
    (bundle.root / "labels.txt").write_bytes(b"dog\ncat\nowl\n")
    with pytest.raises(BundleError, match="changed"):
        bundle.read("labels.txt", 100)


def test_the_right_word_for_a_broken_yaml(tmp_path: Path) -> None:
    """Broken YAML and text that is not UTF-8 name the line."""
    assert "line" in refused(write_bundle(tmp_path / "a", {"model.yaml": BROKEN_SPEC})).cause
    latin = spec_yaml() + "# gr\xfc\xdfe\n".encode("latin-1")
    assert "not UTF-8" in refused(write_bundle(tmp_path / "b", {"model.yaml": latin})).cause
