"""The hook that draws images of the generator."""

from __future__ import annotations

import os
from typing import Any

import torch

from runnerkit.hooks import Hook
from runnerkit.parallel import unwrap


class SampleGridHook(Hook):
    """Draws a grid of generated images into ``samples.png`` of the work dir, every ``interval`` iterations and at the
    end, always from the same noise.

    Args:
        size: of the noise.
        interval: iterations between two pictures.
        rows: rows and columns of the grid.
    """

    def __init__(self, size: int, interval: int = 500, rows: int = 8) -> None:
        self.interval, self.rows = interval, rows
        self.noise = torch.randn(rows * rows, size, generator=torch.Generator().manual_seed(0))

    def after_train_iter(self, runner: Any) -> None:
        if self.every_n_iters(runner, self.interval):
            self.draw(runner)

    def after_run(self, runner: Any) -> None:
        self.draw(runner)

    @torch.no_grad()
    def draw(self, runner: Any) -> None:
        """Write the file; on rank 0."""
        from matplotlib.image import imsave

        if runner.rank:
            return
        generator = unwrap(runner.model).generator
        was_training = generator.training
        generator.eval()
        images = generator(self.noise.to(next(generator.parameters()).device)).cpu()
        generator.train(was_training)
        grid = images.view(self.rows, self.rows, 28, 28).transpose(1, 2).reshape(28 * self.rows, 28 * self.rows)
        path = os.path.join(runner.work_dir, 'samples.png')
        imsave(path, grid.numpy(), cmap='gray', vmin=-1, vmax=1)
