"""Label files (case 25): normalised where it is harmless, refused where a name could shift."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vedette.bundle.labels import parse_labels
from vedette.errors import BundleError
from vedette.wire.bundle import Labels

PLAIN = ("cat", "dog", "owl")


@pytest.mark.parametrize(
    "content",
    [
        b"cat\ndog\nowl\n",
        b"cat\ndog\nowl",
        b"cat\r\ndog\r\nowl\r\n",
        b"cat\rdog\rowl\r",
        b"\xef\xbb\xbfcat\ndog\nowl\n",
        b"\xef\xbb\xbfcat\r\ndog\r\nowl\r\n\r\n\r\n",
        b"cat\ndog\nowl\n\n \n\t\n",
        b"  cat\ndog \nowl\t\n",
    ],
)
def test_harmless_differences_are_normalised(content: bytes) -> None:
    """Case 25: BOM, line ends, blank lines at the end and spaces around a name."""
    assert parse_labels(content, Labels(count=3)) == PLAIN


def test_a_background_row_stays_where_the_offset_expects_it() -> None:
    """Case 25: 4 lines, count 3, offset 1; the lines come whole, class 0 is line 1."""
    lines = parse_labels(b"background\ncat\ndog\nowl\n", Labels(count=3, offset=1))
    assert lines == ("background", *PLAIN)


@pytest.mark.parametrize(
    ("lines", "labels"), [(79, Labels(count=80)), (81, Labels(count=80)), (91, Labels(count=91, offset=1))]
)
def test_a_wrong_number_of_names_is_refused(lines: int, labels: Labels) -> None:
    """Case 25: the message holds both numbers."""
    content = "".join(f"thing {index}\n" for index in range(lines)).encode()
    with pytest.raises(BundleError) as caught:
        parse_labels(content, labels)
    assert f"{lines} names" in caught.value.cause
    assert f"count {labels.count} + offset {labels.offset}" in caught.value.cause


@pytest.mark.parametrize(
    ("content", "line"), [(b"cat\n\nowl\n", 2), (b"\ncat\nowl\n", 1), (b"a\n \t\nb\n", 2)]
)
def test_a_blank_line_between_names_is_refused(content: bytes, line: int) -> None:
    """Case 25: dropping it would shift every name after it."""
    with pytest.raises(BundleError, match=f"line {line}: blank"):
        parse_labels(content, Labels(count=3))


def test_two_classes_may_share_a_name() -> None:
    """ImageNet has two cranes and two missiles."""
    assert parse_labels(b"crane\ncrane\n", Labels(count=2)) == ("crane", "crane")


def test_only_line_ends_split_names() -> None:
    """Characters that Python's splitlines would take for line ends are part of a name."""
    assert parse_labels("a\u2028b\nc\u0085d\n".encode(), Labels(count=2)) == ("a\u2028b", "c\u0085d")


@pytest.mark.parametrize(
    ("content", "words"), [(b"cat\nd\xe9\n", "line 2: not UTF-8"), (b"a\0b\nc\n", "control")]
)
def test_text_that_is_no_text_is_refused(content: bytes, words: str) -> None:
    """Latin-1 and NUL bytes, with the line."""
    with pytest.raises(BundleError, match=words):
        parse_labels(content, Labels(count=2))


@given(st.binary(max_size=60), st.integers(1, 5), st.integers(0, 2))
def test_any_bytes_give_the_right_number_of_names_or_words(content: bytes, count: int, offset: int) -> None:
    """Never a list of another length, never another error."""
    try:
        lines = parse_labels(content, Labels(count=count, offset=offset))
    except BundleError as error:
        assert error.cause.startswith("labels.txt")  # noqa: PT017 - both ends are right here
    else:
        assert len(lines) == count + offset
        assert all(lines)
