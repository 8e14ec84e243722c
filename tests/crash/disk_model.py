"""What may be on a disk after a power cut, from the steps that a program took (after ALICE, OSDI 2014).

The model is harsher than common file systems: data reaches the disk only by `fsync` of the file, in any order
and torn at pages or sectors; a name only by `fsync` of its folder, even of a file that was synced; names may
survive in any order unless one depends on another. A rename is atomic.
"""

from __future__ import annotations

import functools
import hashlib
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from vedette.fsops import Kind

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from vedette.fsops import Operation

PAGE_BYTES = 4096
SECTOR_BYTES = 512
_DIGESTS_KEPT = 1024

# A folder and all below it: content by relative path, None for a folder; parents before what is in them.
Tree = dict[str, "bytes | None"]


def read_tree(root: Path) -> Tree:
    """What lies below a folder."""
    return {
        str(path.relative_to(root)): None if path.is_dir() else path.read_bytes()
        for path in sorted(root.rglob("*"))
    }


def write_tree(tree: Tree, root: Path) -> None:
    """Put it into a folder that is not there yet."""
    root.mkdir()
    for name, content in tree.items():
        if content is None:
            (root / name).mkdir()
        else:
            (root / name).write_bytes(content)


def fingerprint(tree: Tree) -> str:
    """Equal for equal trees."""
    digest = hashlib.sha256()
    for name, content in sorted(tree.items()):
        digest.update(f"{name}\0{'folder' if content is None else _digest(content)}\0".encode())
    return digest.hexdigest()


@functools.lru_cache(maxsize=_DIGESTS_KEPT)
def _digest(content: bytes) -> str:
    """Most files of an image are those of the image before, the very same objects."""
    return hashlib.sha256(content).hexdigest()


@dataclass(eq=False)
class File:
    """Content that is on the disk, and the writes and resizes that may be."""

    durable: bytes = b""
    pending: list[Operation] = field(default_factory=list)


@dataclass(eq=False)
class Folder:
    """Names on the disk, and names as the running system sees them."""

    durable: dict[str, Node] = field(default_factory=dict)
    live: dict[str, Node] = field(default_factory=dict)


Node = File | Folder
Edit = tuple[Folder, str, "Node | None"]
Change = tuple[Edit, ...]  # edits of names that happen together


@dataclass(frozen=True)
class Variant:
    """How much of what was not synced survives; `grain_bytes` is the unit in which data is torn."""

    name: str
    names: float
    data: float
    sizes: bool
    grain_bytes: int = PAGE_BYTES


VARIANTS = (
    Variant("nothing", names=0, data=0, sizes=False),
    Variant("names, empty files", names=1, data=0, sizes=False),
    Variant("names, files of zeros", names=1, data=0, sizes=True),
    Variant("data, no names", names=0, data=1, sizes=True),
    Variant("torn pages", names=1, data=0.5, sizes=True),
    Variant("some of all, torn sectors", names=0.5, data=0.5, sizes=False, grain_bytes=SECTOR_BYTES),
)


class DiskModel:
    """Follows the steps of a program from a state that is wholly on the disk."""

    def __init__(self, start: Tree) -> None:
        self._root = _load(start)
        self._changes: list[Change] = []

    def apply(self, step: Operation) -> None:
        """Take one step; paths are relative to the root."""
        if step.kind in {Kind.WRITE, Kind.RESIZE}:
            self._file(step.path).pending.append(step)
        elif step.kind is Kind.SYNC:
            file = self._file(step.path)
            file.durable = _played(file, lambda: True, sizes=True, grain_bytes=PAGE_BYTES)
            file.pending.clear()
        elif step.kind is Kind.SYNC_FOLDER:
            self._sync_names(self._folder(step.path))
        else:
            change = tuple(self._edits(step))
            _make(change, live=True)
            self._changes.append(change)

    def image(self, variant: Variant, chance: random.Random) -> Tree:
        """One possible disk."""
        saved = {id(folder): dict(folder.durable) for folder in _folders(self._root, self._changes)}
        for change in _closed(self._changes, lambda _change: chance.random() < variant.names):
            _make(change, live=False)
        tree: Tree = {}
        _write(self._root, "", tree, variant, chance)
        for folder in _folders(self._root, self._changes):
            folder.durable = saved.get(id(folder), {})
        return tree

    def _edits(self, step: Operation) -> Iterable[Edit]:
        parent, name = self._parent(step.path)
        if step.kind is Kind.CREATE:
            yield parent, name, File()
        elif step.kind is Kind.MAKE_FOLDER:
            yield parent, name, Folder()
        elif step.kind is Kind.RENAME:
            node = parent.live[name]
            yield parent, name, None
            yield (*self._parent(step.target), node)
        elif name in parent.live:
            yield parent, name, None

    def _sync_names(self, folder: Folder) -> None:
        synced = _closed(self._changes, lambda change: any(edit[0] is folder for edit in change))
        for change in synced:
            _make(change, live=False)
        self._changes = [change for change in self._changes if not any(change is done for done in synced)]

    def _parent(self, path: str) -> tuple[Folder, str]:
        pure = PurePosixPath(path)
        return self._folder(str(pure.parent)), pure.name

    def _folder(self, path: str) -> Folder:
        node: Node = self._root
        for part in PurePosixPath(path).parts:
            assert isinstance(node, Folder)
            node = node.live[part]
        assert isinstance(node, Folder)
        return node

    def _file(self, path: str) -> File:
        parent, name = self._parent(path)
        node = parent.live[name]
        assert isinstance(node, File)
        return node


def _closed(changes: list[Change], wanted: Callable[[Change], bool]) -> list[Change]:
    """The changes wanted, with all earlier ones of the same names, in order."""
    names: set[tuple[int, str]] = set()
    chosen: list[Change] = []
    for change in reversed(changes):
        keys = {(id(folder), name) for folder, name, _node in change}
        if wanted(change) or keys & names:
            names |= keys
            chosen.append(change)
    return chosen[::-1]


def _make(change: Change, *, live: bool) -> None:
    for folder, name, node in change:
        entries = folder.live if live else folder.durable
        if node is None:
            entries.pop(name, None)
        else:
            entries[name] = node


def _folders(root: Folder, changes: Iterable[Change]) -> list[Folder]:
    """Every folder that is on the disk or may be."""
    found: dict[int, Folder] = {}
    waiting: list[Node] = [root]
    waiting += [node for change in changes for folder, _name, new in change for node in (folder, new) if node]
    while waiting:
        node = waiting.pop()
        if isinstance(node, Folder) and id(node) not in found:
            found[id(node)] = node
            waiting += [*node.durable.values(), *node.live.values()]
    return list(found.values())


def _played(file: File, keep: Callable[[], bool], *, sizes: bool, grain_bytes: int) -> bytes:
    if not file.pending:
        return file.durable
    content = bytearray(file.durable)
    for step in file.pending:
        if step.kind is Kind.RESIZE:
            if sizes:
                del content[step.size_bytes :]
                content.extend(bytes(step.size_bytes - len(content)))
            continue
        end = step.offset + len(step.data)
        if sizes and len(content) < end:
            content.extend(bytes(end - len(content)))
        for start, stop in _grains(step.offset, end, grain_bytes):
            if keep():
                content.extend(bytes(max(0, stop - len(content))))
                content[start:stop] = step.data[start - step.offset : stop - step.offset]
    return bytes(content)


def _grains(start: int, end: int, grain_bytes: int) -> Iterable[tuple[int, int]]:
    while start < end:
        stop = min(end, (start // grain_bytes + 1) * grain_bytes)
        yield start, stop
        start = stop


def _load(tree: Tree) -> Folder:
    root = Folder()
    folders = {"": root}
    for name, content in tree.items():
        parent, _, last = name.rpartition("/")
        node: Node = Folder() if content is None else File(content)
        if isinstance(node, Folder):
            folders[name] = node
        folders[parent].durable[last] = folders[parent].live[last] = node
    return root


def _write(folder: Folder, path: str, tree: Tree, variant: Variant, chance: random.Random) -> None:
    for name, node in sorted(folder.durable.items()):
        place = f"{path}/{name}" if path else name
        if isinstance(node, Folder):
            tree[place] = None
            _write(node, place, tree, variant, chance)
        else:
            tree[place] = _played(
                node,
                lambda: chance.random() < variant.data,
                sizes=variant.sizes,
                grain_bytes=variant.grain_bytes,
            )
