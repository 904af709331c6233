"""Where hooks put files: a folder or URL, through a file client."""

from __future__ import annotations

import os
from typing import Any

from runnerkit.fileio.file_client import FileClient
from runnerkit.fileio.paths import local_path
from runnerkit.hooks.hook import Hook, RunnerView


class StoringHook(Hook):
    """A hook with an ``out_dir``, the work dir unless it is given.

    Attributes:
        out_dir: from the start of the run on, ``<out_dir>/<name of the work dir>`` where it was given.
        file_client: what reads, writes and deletes there.
    """

    out_dir: str | None = None
    file_client_args: dict[str, Any] | None = None
    file_client: FileClient | None = None

    def place(self, runner: RunnerView) -> str:
        """The folder or URL where the files of ``runner`` go."""
        self._settle_out_dir(runner)
        return str(self.out_dir)

    def _settle_out_dir(self, runner: RunnerView) -> None:
        """Find out where files go, once: a second run of the same hook goes on there."""
        if self.file_client is not None:
            return
        if not self.out_dir:
            self.out_dir = runner.work_dir
        if self.out_dir is None:
            raise ValueError(
                f'{type(self).__name__} has nowhere to save to: give the runner a work_dir, or the hook an out_dir'
            )
        self.out_dir = local_path(self.out_dir)
        client = self._client()
        if runner.work_dir is not None and self.out_dir != runner.work_dir:
            self.out_dir = str(client.join_path(self.out_dir, os.path.basename(runner.work_dir.rstrip('/\\'))))

    def _client(self) -> FileClient:
        if self.file_client is None:
            self.file_client = FileClient.infer_client(self.file_client_args, str(self.out_dir))
        return self.file_client

    def _storage_arguments(self) -> dict[str, Any]:
        """What ``runner.save_checkpoint`` has to know of the storage; nothing where the path says it all."""
        return {} if self.file_client_args is None else {'file_client_args': self.file_client_args}

    def _path(self, name: str) -> str:
        return str(self._client().join_path(str(self.out_dir), name))

    def _delete(self, path: str) -> bool:
        """Delete the file if there is one; returns whether there was."""
        is_there = self._client().isfile(path)
        if is_there:
            self._client().remove(path)
        return bool(is_there)
