"""The agent answers what a straight script answers: same pictures, same model, bare engine."""

from __future__ import annotations

import contextlib
import os
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import cv2
import numpy as np
import pytest
from msgspec import UNSET
from tests.integration.picture_set import COUNT, pictures
from tests.integration.straight_script import CLASSIFIERS, FACE_SIDE, MODELS, face_detector

from vedette.engine.messages import WorkerSpec
from vedette.engine.model import load_model
from vedette.vision.picture import picture_from_buffer
from vedette.wire.pixels import PixelFormat, describe

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.integration.straight_script import Picture

    from vedette.engine.model import Model
    from vedette.vision.answers import Answer

pytestmark = pytest.mark.engine

CIFAR_ARCHIVE = "cifar10_test_5000.zip"
CIFAR_ACCURACY = 0.754
# Three standard errors of a share of .754 in 5,000 draws.
CIFAR_MARGIN = 0.018


@contextlib.contextmanager
def agent_model(bundle: str) -> Iterator[Model]:
    """The model as an engine worker loads it, on one thread."""
    model = load_model(WorkerSpec(bundle=str(MODELS / bundle), threads=1), lambda _: None)
    try:
        yield model
    finally:
        model.close()


def answer(model: Model, picture: Picture) -> Answer:
    height, width = picture.shape[:2]
    frame = picture_from_buffer(picture.data.cast("B"), describe(width, height, PixelFormat.BGR24))
    return model.answer(frame)


def top_index(found: Answer) -> int:
    assert found.top is not UNSET
    return found.top[0].index


@pytest.mark.parametrize("bundle", CLASSIFIERS)
def test_same_class_as_a_straight_script_on_every_picture(bundle: str) -> None:
    """Top-1 of 500 pictures of eight sizes, with either engine; not one may differ."""
    straight = CLASSIFIERS[bundle]()
    expected = [straight(picture) for picture in pictures()]
    with agent_model(bundle) as model:
        found = [top_index(answer(model, picture)) for picture in pictures()]
    differing = [number for number in range(COUNT) if expected[number] != found[number]]
    assert len(expected) == COUNT
    assert len(set(expected)) > 1, "a set that is all of one class proves nothing"
    assert differing == []


def test_same_faces_within_half_a_model_pixel() -> None:
    """As many faces in each of 500 pictures, each corner within half a pixel of the model's input."""
    straight = face_detector()
    with_faces = 0
    with agent_model("face") as model:
        for number, picture in enumerate(pictures()):
            expected = straight(picture)
            detections = answer(model, picture).detections
            assert detections is not UNSET
            assert len(detections) == len(expected), f"picture {number}"
            tolerance = 0.5 * max(picture.shape[:2]) / FACE_SIDE
            for mine, theirs in zip(detections, expected, strict=True):
                assert mine.score == pytest.approx(theirs.score, abs=1e-3), f"picture {number}"
                assert mine.box == pytest.approx(theirs.box, abs=tolerance), f"picture {number}"
            with_faces += bool(expected)
    assert with_faces >= 50, "a set with hardly a face proves nothing"


def cifar_archive() -> Path:
    """In the folder that VEDETTE_TEST_DATA names, or in `shared/data` beside the checkout."""
    beside = Path(__file__).parents[3] / "shared" / "data"
    path = Path(os.environ.get("VEDETTE_TEST_DATA", beside)) / CIFAR_ARCHIVE
    if not path.is_file():
        pytest.skip(f"no {CIFAR_ARCHIVE}; set VEDETTE_TEST_DATA to the folder that holds it")
    return path


def labelled_pictures(archive: Path) -> Iterator[tuple[str, Picture]]:
    """Class name and picture; the folder is the class."""
    with zipfile.ZipFile(archive) as opened:
        for name in sorted(opened.namelist()):
            if not name.endswith("/"):
                data = np.frombuffer(opened.read(name), np.uint8)
                picture = cv2.imdecode(data, cv2.IMREAD_COLOR)
                assert picture is not None, f"{name} cannot be decoded"
                yield name.split("/")[-2], np.asarray(picture, np.uint8)


def test_cifar_is_as_often_right_as_its_authors_say() -> None:
    """About .754 on 5,000 labelled pictures: colour order, range and labels all have to be right."""
    straight = CLASSIFIERS["cifar"]()
    right = count = differing = 0
    with agent_model("cifar") as model:
        for label, picture in labelled_pictures(cifar_archive()):
            top = answer(model, picture).top
            assert top is not UNSET
            count += 1
            right += top[0].label == label
            differing += top[0].index != straight(picture)
    assert count == 5000
    assert differing == 0
    assert right / count == pytest.approx(CIFAR_ACCURACY, abs=CIFAR_MARGIN)
