"""Sizes, names, variables and credentials as people write them."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vedette.config.credentials import has_written_password
from vedette.config.notation import PictureSize, expand_variables, parse_byte_size, parse_name


@pytest.mark.parametrize(
    ("written", "size_bytes"),
    [
        ("0B", 0),
        ("50MB", 50_000_000),
        ("50 mb", 50_000_000),
        ("1.5GiB", 1_610_612_736),
        ("256MiB", 268_435_456),
        ("2kB", 2000),
        ("1TiB", 1 << 40),
    ],
)
def test_sizes_are_decimal_or_binary_as_written(written: str, size_bytes: int) -> None:
    assert parse_byte_size(written) == size_bytes


@pytest.mark.parametrize(
    "written", ["50", 50, "MB", "-1MB", "1,5GB", "50M", "1e3MB", "", None, True, "1 GB s", "٣MB"]
)
def test_a_size_without_unit_or_sense_is_refused(written: object) -> None:
    with pytest.raises(ValueError, match="with its unit"):
        parse_byte_size(written)


@given(st.integers(0, 10**6), st.sampled_from(["B", "KB", "MB", "GB", "KiB", "MiB", "GiB"]))
def test_whole_sizes_are_exact(count: int, unit: str) -> None:
    factor = {"K": 1, "M": 2, "G": 3}.get(unit[0], 0)
    assert parse_byte_size(f"{count}{unit}") == count * (1024 if "i" in unit else 1000) ** factor


@given(st.integers(1, 99_999), st.integers(1, 99_999))
def test_picture_sizes_are_width_then_height(width: int, height: int) -> None:
    assert PictureSize.from_document(f"{width}x{height}") == PictureSize(width, height)


@pytest.mark.parametrize(
    "written",
    ["640", 640, "640*480", "640x", "x480", "0x480", "640x0", "-1x5", "640x480x3", None, [640, 480]],
)
def test_a_picture_size_of_another_form_is_refused(written: object) -> None:
    with pytest.raises(ValueError, match="WIDTHxHEIGHT"):
        PictureSize.from_document(written)


@pytest.mark.parametrize("name", ["a", "cam-7", "Front_door.2", "7", "x" * 63])
def test_names_that_fit_topics_and_files(name: str) -> None:
    assert parse_name(name) == name


@pytest.mark.parametrize(
    "name",
    ["", "a/b", "a+", "#", "$SYS", "a b", "-x", ".", "..", ".hidden", "x" * 64, "é", "a\n", "a\x00", 7, None],
)
def test_names_that_would_break_topics_or_files(name: object) -> None:
    with pytest.raises(ValueError, match=r"usable name|expected text"):
        parse_name(name)


ENVIRON = {"PW": "s3cret", "EMPTY": "", "NESTED": "${PW}$$"}


@pytest.mark.parametrize(
    ("written", "filled_in"),
    [
        ("plain", "plain"),
        ("rtsp://u:${PW}@h/x", "rtsp://u:s3cret@h/x"),
        ("${PW}${PW}", "s3crets3cret"),
        ("${EMPTY}", ""),
        ("$$", "$"),
        ("$${PW}", "${PW}"),
        ("$$$$", "$$"),
        ("$PW costs 5$", "$PW costs 5$"),
        ("${NESTED}", "${PW}$$"),
    ],
)
def test_variables_are_filled_in_once(written: str, filled_in: str) -> None:
    assert expand_variables(written, ENVIRON) == filled_in


@pytest.mark.parametrize(
    ("written", "what"),
    [
        ("${NOPE}", "variable NOPE is not set"),
        ("x${}", r"`${}` is not ${NAME}"),
        ("${PW:-default}", "is not ${NAME}"),
        ("${a b}", "is not ${NAME}"),
        ("${7}", "is not ${NAME}"),
    ],
)
def test_a_variable_that_is_not_there_is_said_by_name(written: str, what: str) -> None:
    with pytest.raises(ValueError, match=re.escape(what)):
        expand_variables(written, ENVIRON)


@given(st.text(max_size=30))
def test_doubled_dollars_protect_any_text(text: str) -> None:
    assert expand_variables(text.replace("$", "$$"), {}) == text


@pytest.mark.parametrize(
    ("url", "written"),
    [
        ("rtsp://u:pw@h/x", True),
        ("rtsp://u:${PW}@h/x", False),
        ("rtsp://${USER}:${PW}@h/x", False),
        ("rtsp://u:pre${PW}@h/x", True),
        ("rtsp://u@h/x", False),
        ("rtsp://u:p@ss@h/x", True),
        ("rtsp://u:p/ss@h/x", True),
        ("http://h:80/x?mail=a@b.c", False),
        ("rtsp://h:554/x", False),
        ("rtsp://u:@h/x", False),
        ("-", False),
    ],
)
def test_a_password_in_the_text_is_noticed(url: str, written: bool) -> None:  # noqa: FBT001 - a table of cases
    assert has_written_password(url) is written
