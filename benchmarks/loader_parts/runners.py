"""MMCV-era runners with custom loops."""

import random

from runnerkit.runner import EpochBasedRunner, IterBasedRunner, IterLoader


class OwnTrain(EpochBasedRunner):
    """An MMCV-era runner with a custom loop."""

    def train(self, data_loader, **kwargs):
        self.model.train()
        self.mode, self.data_loader = 'train', data_loader
        self._max_iters = self._max_epochs * len(data_loader)
        self.call_hook('before_train_epoch')
        for i, data_batch in enumerate(data_loader):
            self._inner_iter = i
            self.call_hook('before_train_iter')
            self.run_iter(data_batch, train_mode=True, **kwargs)
            self.call_hook('after_train_iter')
            self._iter += 1
        self.call_hook('after_train_epoch')
        self._epoch += 1


class OwnTrainByIter(IterBasedRunner):
    """The same for the iteration runner."""

    def train(self, data_loader, **kwargs):
        self.model.train()
        self.mode, self.data_loader = 'train', data_loader
        self._epoch = data_loader.epoch
        data_batch = next(data_loader)
        self.call_hook('before_train_iter')
        self.outputs = self.model.train_step(data_batch, self.optimizer, **kwargs)
        self.log_buffer.update(self.outputs['log_vars'], self.outputs['num_samples'])
        self.call_hook('after_train_iter')
        self._inner_iter += 1
        self._iter += 1


class OwnRun(OwnTrainByIter):
    """mmgen's DynamicIterBasedRunner: also with custom ``run`` and ``call_hook``."""

    def call_hook(self, fn_name):
        for hook in self._hooks:
            getattr(hook, fn_name, lambda runner: None)(self)

    def run(self, data_loaders, workflow, max_iters=None, **kwargs):
        loaders = [IterLoader(loader) for loader in data_loaders]
        self.call_hook('before_run')
        self.call_hook('before_epoch')
        while self.iter < self._max_iters:
            for loader, (mode, n) in zip(loaders, workflow, strict=True):
                self._inner_iter = 0
                for _ in range(n):
                    if mode == 'train' and self.iter >= self._max_iters:
                        break
                    getattr(self, mode)(loader, **kwargs)
        self.call_hook('after_epoch')
        self.call_hook('after_run')


class OwnRunIter(EpochBasedRunner):
    """A runner with a custom step."""

    def run_iter(self, data_batch, train_mode, **kwargs):
        if train_mode:
            data_batch = [data_batch[0] + random.random(), data_batch[1]]
        super().run_iter(data_batch, train_mode, **kwargs)
