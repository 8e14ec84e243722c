"""Class names bound to a model: line ends and BOM normalised, the count checked (casebook 25). Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from vedette.errors import BundleError

if TYPE_CHECKING:
    from vedette.wire.bundle import Labels

_LINE_END = re.compile(r"\r\n|\n|\r")
_BOM = "\ufeff"


def parse_labels(content: bytes, labels: Labels) -> tuple[str, ...]:
    """Read a label file.

    Args:
        content: The file's bytes, UTF-8, one name a line.
        labels: What `model.yaml` says of it.

    Returns:
        One name per line: class index i has the name at i + `labels.offset`.

    Raises:
        BundleError: Not UTF-8, a blank line between names, or not `count` + `offset` lines.
    """
    lines = _lines(content, labels.file)
    for number, line in enumerate(lines, start=1):
        if not line:
            raise BundleError(
                f"{labels.file} line {number}: blank, which would shift every name after it",
                cure="give the class a name or delete the line",
            )
        if any(ord(char) < 32 and char != "\t" for char in line):
            raise BundleError(
                f"{labels.file} line {number}: holds a control character", cure="save it as plain text"
            )
    expected = labels.count + labels.offset
    if len(lines) != expected:
        raise BundleError(
            f"{labels.file}: {len(lines)} names, but model.yaml says count {labels.count} "
            f"+ offset {labels.offset} = {expected}",
            cure="correct output.labels.count or .offset, or use the label file of this very model",
        )
    return tuple(lines)


def _lines(content: bytes, file: str) -> list[str]:
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise BundleError(f"{file} line {line}: not UTF-8", cure="save the file as UTF-8") from error
    lines = [line.strip() for line in _LINE_END.split(text.removeprefix(_BOM))]
    while lines and not lines[-1]:
        lines.pop()
    return lines
