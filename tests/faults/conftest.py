"""What fault tests share: a stub bundle, and children that find the tests' modules."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.stubs.running import REPOSITORY, stub_bundle

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def bundle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A sealed bundle for the stub engine, which worker processes can import."""
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY))
    return stub_bundle(tmp_path / "bundle")
