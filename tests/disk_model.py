"""A disk that fails where it is told to, and one whose power goes off: what may be left after each operation."""

from __future__ import annotations

import itertools
import os
from contextlib import contextmanager
from pathlib import Path

OPERATIONS = ('open', 'write', 'fsync', 'close', 'replace', 'unlink', 'remove', 'symlink', 'mkdir')


@contextmanager
def watched(folder, around):
    """While this lasts, every operation on ``folder`` goes through ``around(name, args, real)``.

    Reading is left alone: only folders and files that are written to are watched.
    """
    folder, descriptors = str(folder), set()
    real = {name: getattr(os, name) for name in OPERATIONS}

    def concerned(name, args):
        if name in ('write', 'fsync', 'close'):
            return args[0] in descriptors
        paths = args[1:2] if name == 'symlink' else args[:1]
        return any(os.fspath(path).startswith(folder) for path in paths if not isinstance(path, int))

    def wrapper(name):
        def call(*args, **kwargs):
            if not concerned(name, args):
                return real[name](*args, **kwargs)
            if name == 'close':
                descriptors.discard(args[0])
            result = around(name, args, lambda *changed: real[name](*(changed or args), **kwargs))
            if name == 'open':
                descriptors.add(result)
            return result

        return call

    try:
        for name in OPERATIONS:
            setattr(os, name, wrapper(name))
        yield
    finally:
        for name in OPERATIONS:
            setattr(os, name, real[name])


class Node:
    """A file: all that was written, and how much of it was flushed."""

    def __init__(self, content=b'', link=None):
        self.content, self.synced, self.link = bytearray(content), len(content), link

    def after_power_loss(self, fate):
        """The content, if what was not flushed had this fate."""
        safe, lost = bytes(self.content[: self.synced]), bytes(self.content[self.synced :])
        left = {'whole': lost, 'empty': b'', 'half': lost[: len(lost) // 2], 'zeros': bytes(len(lost))}
        return safe + left[fate]


class Disk:
    """What a folder holds on the disk and what only in memory, operation by operation.

    Attributes:
        names: the entries that are on the disk.
        pending: changes of the folder that are not, in order: each (name that goes, name that comes, its node).
    """

    def __init__(self, folder):
        self.folder = Path(folder)
        self.nodes = {path.name: self._read(path) for path in self.folder.iterdir()}
        self.names, self.pending, self.descriptors = dict(self.nodes), [], {}

    def _read(self, path):
        return Node(link=os.readlink(path)) if path.is_symlink() else Node(path.read_bytes())

    def note(self, name, args, result):
        """Take account of an operation that was done."""
        if name == 'open':
            self._open(args, result)
        elif name == 'write':
            self.descriptors[args[0]].content += bytes(args[1])[:result]
        elif name == 'fsync':
            node = self.descriptors[args[0]]
            if node is None:  # the folder
                self.names = self._entries(range(len(self.pending)))
                self.pending = []
            else:
                node.synced = len(node.content)
        elif name == 'close':
            del self.descriptors[args[0]]
        elif name == 'symlink':
            self._change(None, Path(args[1]).name, Node(link=os.fspath(args[0])))
        elif name == 'replace':
            gone = Path(args[0]).name
            self._change(gone, Path(args[1]).name, self.nodes.pop(gone))
        elif name in ('unlink', 'remove'):
            self._change(Path(args[0]).name, None, None)

    def _open(self, args, descriptor):
        path = Path(args[0])
        if path == self.folder:
            self.descriptors[descriptor] = None
        elif args[1] & os.O_CREAT:
            node = Node()
            self.descriptors[descriptor] = node
            self._change(None, path.name, node)

    def _change(self, gone, come, node):
        self.pending.append((gone, come, node))
        self.nodes.pop(gone, None)
        if come is not None:
            self.nodes[come] = node

    def _entries(self, happened):
        entries = dict(self.names)
        for i in happened:
            gone, come, node = self.pending[i]
            entries.pop(gone, None)
            if come is not None:
                entries[come] = node
        return entries

    def after_power_loss(self):
        """Every state in which the disk may be found: a dict from name to content or (for links) target.

        Each change of the folder that was not flushed may have happened or not, whatever became of the others.
        """
        seen = set()
        count = len(self.pending)
        for happened in itertools.chain.from_iterable(
            itertools.combinations(range(count), n) for n in range(count + 1)
        ):
            for fate in ('whole', 'empty', 'half', 'zeros'):
                state = {
                    name: ('link', node.link) if node.link is not None else ('file', node.after_power_loss(fate))
                    for name, node in self._entries(happened).items()
                }
                key = frozenset(state.items())
                if key not in seen:
                    seen.add(key)
                    yield state


def lay_out(state, folder):
    """Make ``folder`` hold what a `Disk` was left with."""
    folder.mkdir()
    for name, (kind, value) in state.items():
        if kind == 'link':
            os.symlink(value, folder / name)
        else:
            (folder / name).write_bytes(value)
