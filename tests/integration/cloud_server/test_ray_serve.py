"""The server over Ray Serve, really started: replicas in Ray's actors, the same paths in front of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.integration.cloud_server.served import Served
from tests.integration.cloud_server.test_cloud_server import INFER, jpeg
from tests.integration.door.asking import ask, picture_request, tensors_of
from tests.stubs.cloud_bundles import colour_bundle

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.slow, pytest.mark.engine, pytest.mark.system, pytest.mark.timeout(300)]


def test_replicas_of_ray_answer_behind_the_same_paths(tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="pip install 'vedette[ray]'")
    bundle = colour_bundle(tmp_path / "bundle")
    options = ("--engine", "ray", "--batch", "4", "--processes", "2")
    with Served(tmp_path, bundle, *options, patience_s=200) as server:
        assert server.ready["engine"] == "ray"
        assert server.ready["batches"] == [1, 2, 4]
        for colour in ("red", "green", "blue"):
            body, headers = picture_request(jpeg(colour))
            answer = ask(server.where, INFER, body=body, headers=headers)
            assert answer.status == 200, answer.body
            assert tensors_of(answer)["labels"][0] == colour
        assert b"vedette_cloud_batch_size_count 3.0" in ask(server.where, "/metrics").body


def test_a_bundle_that_cannot_be_served_ends_the_server_and_not_only_its_replicas(tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="pip install 'vedette[ray]'")
    with (
        pytest.raises(AssertionError, match="no server"),
        Served(tmp_path, tmp_path / "nothing", "--engine", "ray", patience_s=200),
    ):
        pytest.fail("it started")
