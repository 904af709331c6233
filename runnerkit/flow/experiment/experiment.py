"""A training that its user writes: a class with the model, the loaders, a training batch and a validation."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any

from torch import Tensor, nn

from runnerkit.data.reader import Reader
from runnerkit.distributed import from_first_rank
from runnerkit.flow.experiment.attributes import Summaries, load_state, state_of_object, stateful
from runnerkit.flow.experiment.setup import LAST, ExperimentSetup, NoBatches, as_step
from runnerkit.flow.experiment.validation import ValidHook, as_evaluation
from runnerkit.hooks import CheckpointHook
from runnerkit.optim.builder import check_optimizer
from runnerkit.optim.named import named_optimizers
from runnerkit.parallel import to_device, unwrap
from runnerkit.parallel.steps import required_output
from runnerkit.runner.workflow import Workflow
from runnerkit.utils.logging import NOT_EXACT
from runnerkit.utils.numbers import plain_number
from runnerkit.utils.suggest import suggestion


def as_outputs(returned: Any, name: str) -> dict[str, Any]:
    """What a runner keeps of what ``train_batch`` of the class ``name`` has returned: its numbers are logged."""
    if returned is None:
        return {}
    if not isinstance(returned, dict):
        raise TypeError(f'{name}.train_batch must return None or a dict such as dict(loss=loss), but got {returned!r}')
    if 'log_vars' in returned:
        return {'num_samples': 1, **returned}
    log_vars = {
        key: value
        for key, value in returned.items()
        if key != 'num_samples'
        and (value.numel() == 1 if isinstance(value, Tensor) else isinstance(plain_number(value), (int, float)))
    }
    return {'num_samples': 1, **returned, 'log_vars': log_vars}


def _counter(name: str, read: Callable[[Any], int], doc: str) -> Any:
    """A counter of the run. It may be set to the value that it has, as in the ``setup`` of Parakeet's document."""

    def refuse(self: Any, value: int) -> None:
        if value != read(self):
            raise AttributeError(
                f'{type(self).__name__}.{name} cannot be set to {value!r}: the run counts it, also across resumes; '
                'remove the assignment'
            )

    return property(read, refuse, doc=doc)


class Experiment(ExperimentSetup):
    """A runner whose user writes the training: subclass it and implement four methods. ::

        class Digits(Experiment):
            def setup_dataloader(self):
                self.train_loader, self.valid_loader = …

            def setup_model(self):
                self.model = …
                self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

            def train_batch(self):
                image, digit = self.read_batch()
                loss = F.cross_entropy(self.model(image), digit)
                self.update(loss)
                return dict(loss=loss)

            def valid(self):
                right = [(self.model(image).argmax(1) == digit).float() for image, digit in self.valid_loader]
                return dict(accuracy=torch.cat(right).mean())

        experiment = Digits(config, args)
        experiment.setup()
        experiment.resume_or_load()
        experiment.run()

    ``run`` trains ``config.training.max_iteration`` batches, calls ``valid`` every ``valid_interval`` of them, and then
    ``save`` every ``save_interval``. It is a runner in all: hooks, logs, checkpoints, exact resumes, several processes.

    What ``train_batch`` returns (None, or a dict of numbers; a ``loss`` for an OptimizerHook) and what it reports with
    `runnerkit.utils.report` is logged. ``valid`` is called on every rank in evaluation mode, without gradients, over
    averaged weights if there is an EMAHook, wherever it is called; what it returns or reports, averaged over the ranks,
    are the scores.

    Checkpoints hold ``model``, ``optimizer``, the place in the loaders, and of your other attributes, also in lists and
    dicts, what has a ``state_dict`` (schedulers, scalers, further networks and optimizers) and random generators.
    The log names other attributes that have changed: return what a resume needs of them in ``state_dict``.

    Args:
        config: a `Config` or a dict; copied. Its section ``training`` has ``max_iteration`` (900000),
            ``valid_interval`` (1000), ``save_interval`` (10000) and ``log_interval``; ``seed`` (0), ``log_config``,
            ``checkpoint_config``, ``evaluation``, ``lr_config``, ``optimizer_config``, ``amp`` and ``custom_hooks``
            mean what they do in other configs; everything else is yours.
        args: the flags, ``output``, ``checkpoint_path``, ``device`` and ``nprocs`` among them, of
            `runnerkit.flow.experiment.main.parser`.
        model: a model that is there; otherwise `setup_model` sets it.
        optimizer: its optimizer, or several by name.
        work_dir: where logs and checkpoints go, without `setup`.
        logger: by default runnerkit's own.
        meta: what every checkpoint should remember.
        max_iters: another ``max_iteration``.

    Attributes:
        train_loader: one loader, or several in a dict by name. Read it with `read_batch`.
        valid_loader: yours to iterate over, in ``valid``.
        device: where the model is, and what `read_batch` gives.
        seed: the config's.
    """

    is_validating = False
    _at_first: Summaries | None = None  # of the user's attributes, when the first run begins

    def __init__(self, config: Any = None, args: Any = None, **kwargs: Any) -> None:
        super().__init__(config, args, **kwargs)
        self.batch_processor = self._step
        self.snapshots.parts.append(SimpleNamespace(state_dict=self.state_of_run, load_state_dict=self.restore_run))
        self._read: list[tuple[Reader, Any]] = []  # what the running iteration has read
        self._logged: set[str] = set()
        self._base_attributes = {*vars(self), '_base_attributes'}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.has_own_train = cls.train is not Experiment.train
        if cls.has_own_train and len(inspect.signature(cls.train).parameters) == 1:
            raise TypeError(
                f'{cls.__name__}.train takes no loader: in an Experiment, train(self, data_loader) is one iteration of '
                'the loop, and the loop is run(). Write train_batch; or override run, with your loop in manual_loop()'
            )
        if not any(each.kind is each.VAR_KEYWORD for each in inspect.signature(cls.save).parameters.values()):
            raise TypeError(
                f'{cls.__name__}.save must be save(self, *args, **options), and hand them on: hooks give them'
            )
        # Whatever a subclass, or a class that it inherits from besides, has written keeps what the base promises.
        makers: dict[str, Callable[..., Any]] = {'valid': as_evaluation}
        makers |= {name: partial(as_step, name) for name in ('setup', 'setup_model', *LAST)}
        for name, made in makers.items():
            method = getattr(cls, name)
            if method is not getattr(Experiment, name) and not hasattr(method, '_is_made'):
                setattr(cls, name, made(method))
                getattr(cls, name)._is_made = True

    # --- what the user writes ----------------------------------------------------------------------------------------

    def train_batch(self) -> dict[str, Any] | None:
        """Train one batch: read it, compute the loss, update the weights, in any way.

        Returns:
            None, or a dict of numbers and one-element tensors, which are logged; with ``log_vars``, those alone.
            ``num_samples`` is their weight in averages. If nothing has updated the weights yet, a registered
            OptimizerHook does so with ``loss``.

        Raises:
            NotImplementedError: a subclass does not override it.
        """
        raise self._not_written('train_batch')

    # --- the run -----------------------------------------------------------------------------------------------------

    def run(
        self,
        data_loaders: Sequence[Any] | None = None,
        workflow: Workflow | None = None,
        max_iters: int | None = None,
        **kwargs: Any,
    ) -> None:
        """Train until ``max_iteration``.

        Args:
            data_loaders: one for each entry of ``workflow``, as in `IterBasedRunner`; by default ``train_loader``.
            workflow: by default ``[('train', 1)]``. Other modes are those of `IterBasedRunner`.
            max_iters: another ``max_iteration``.
            **kwargs: handed to ``train_batch``.

        Raises:
            RuntimeError: there is no model.
        """
        with self._prepared(data_loaders) as loaders:
            super().run(loaders, workflow or [('train', 1)], max_iters, **kwargs)

    @contextmanager
    def manual_loop(self) -> Iterator[None]:
        """The span of a custom loop, in an overridden ``run``. ::

            def run(self):
                with self.manual_loop():
                    while self.iteration < self.config.training.max_iteration:
                        self.train()  # one iteration: train_batch, and everything around it
                        if self.iteration % self.config.training.valid_interval == 0:
                            self.valid()
                        if self.iteration % self.config.training.save_interval == 0:
                            self.save()

        It is a run in all: hooks, logs, signals, the end saved, exact resumes. ``valid`` and ``save`` are called by the
        loop alone, and all that it saves is kept; ``valid_interval``, ``save_interval`` and ``save_best`` have no
        effect. When the run is asked to stop, the next ``train`` leaves the span.

        Raises:
            RuntimeError: there is no model.
        """
        with self._prepared() as loaders:
            if self._checkpointer is not None and self._checkpointer in self.hooks:
                self._checkpointer.interval = self._checkpointer.max_keep_ckpts = -1  # it saves the end
            for hook in [hook for hook in self.hooks if isinstance(hook, ValidHook)]:
                self.hooks.remove(hook)
            with self.custom_loop(loaders, [('train', 1)]):
                yield

    @contextmanager
    def _prepared(self, data_loaders: Sequence[Any] | None = None) -> Iterator[list[Any]]:
        """What is around every run; gives its loaders."""
        self._complete()
        self.check_model()
        self.check_loaders()
        check_optimizer(self.optimizer)
        self._model_name = type(unwrap(self.model)).__name__
        savers = [hook for hook in self.hooks if isinstance(hook, CheckpointHook)]
        if self._checkpointer is not None and self._checkpointer in savers and len(savers) > 1:
            self.hooks.remove(self._checkpointer)
            self.logger.info('training.save_interval has no effect: another CheckpointHook is registered, which saves')
        if self._at_first is None:
            self._at_first = self._summaries()
        if self._log_file is not None:
            self._open_log()
        if self._owns_work_dir:
            from_first_rank(self._claim)
            if not self._iter:
                from_first_rank(self._set_aside)
        try:
            yield list(self.train_loaders.values())[:1] if data_loaders is None else list(data_loaders)
        finally:
            self.close()

    def train(self, data_loader: Reader | None = None, mode: str = 'train', **kwargs: Any) -> None:
        """Train one iteration: ``train_batch``, or in other modes as in `IterBasedRunner`.

        Args:
            data_loader: by default the first one of the run; see `manual_loop`.
            mode: of the workflow.
            **kwargs: handed to ``train_batch``.

        Raises:
            RuntimeError: no run has begun, and no loader is given.
        """
        if self.lifecycle.skips(trains=True):
            return
        if data_loader is None and not self.readers.entries:
            raise RuntimeError('train() is one iteration of a run: call run(), or write your loop in manual_loop()')
        data_loader = self.readers.entries[0] if data_loader is None else data_loader
        if mode != 'train':
            super().train(data_loader, mode, **kwargs)
            return
        if not self.model.training:
            self.model.train()
        if data_loader not in self.readers.entries:
            self.readers.of(data_loader)
        self.mode, self.data_loader, self._epoch = mode, data_loader, data_loader.epoch
        self.progress.is_in_iter = True
        try:
            with self.hooks.around['around_iter']:
                self.call_hook('before_train_iter')
                self.run_iter(None, train_mode=True, **kwargs)
                self.call_hook('after_train_iter')
        except BaseException:  # if this runner runs again, what this iteration has read comes first
            if not self.progress.iter_is_done:
                for reader, batch in reversed(self._read):
                    reader.give_back(batch)
            raise
        finally:
            self.progress.is_in_iter = False
            self._read.clear()
            self.data_batch = None
        self._inner_iter += 1
        self._iter += 1

    def _step(self, model: Any, data: Any, train_mode: bool, **kwargs: Any) -> dict[str, Any]:
        """The step of a runner: a batch of the experiment's, or in other modes a step of the model's."""
        if not train_mode:
            return model.val_step(data, **kwargs)
        if self.mode != 'train':
            return getattr(model, f'{self.mode}_step')(data, self.optimizer, **kwargs)
        with self.naming_unset('optimizer', 'setup_model'):
            return as_outputs(self.train_batch(**kwargs), type(self).__name__)

    @contextmanager
    def naming_unset(self, name: str, method: str) -> Iterator[None]:
        """Note on an error of the user's method that an attribute was not set, which it may have needed."""
        try:
            yield
        except Exception as error:
            if getattr(self, name) is None:
                error.add_note(f'self.{name} is None: {type(self).__name__}.{method} has not set it')
            raise

    def required(self, key: str, outputs: dict[str, Any] | None = None) -> Any:
        """``outputs[key]`` of the running iteration.

        Raises:
            KeyError: ``train_batch`` did not return it.
        """
        name = type(self).__name__ if self.mode == 'train' else self.model
        return required_output(key, self.outputs if outputs is None else outputs, name)

    iteration = _counter(
        'iteration',
        lambda self: self.completed_iters + self.progress.is_in_iter,
        'The running iteration, from 1; between two, how many are done (0 before the first).',
    )
    epoch = _counter('epoch', lambda self: self._epoch, 'The running pass over the first loader that is read, from 0.')

    # --- reading -----------------------------------------------------------------------------------------------------

    def read_batch(self, loader_name: str | None = None) -> Any:
        """The next batch, on ``device``. After the last one of a pass over the loader, the next epoch begins.

        A batch of training may read none, one, or several; a resumed run continues behind what was read.

        Args:
            loader_name: which of several loaders; None: the first one.

        Raises:
            KeyError: there is no such loader.
        """
        reader = self._reader(loader_name)
        batch = next(reader)
        if reader is self.data_loader:
            self._epoch, self.data_batch = reader.epoch, batch
        self._read.append((reader, batch))
        return batch if self.device.type == 'cpu' else to_device(batch, self.device)

    def new_epoch(self, loader_name: str | None = None) -> None:
        """Leave the rest of the running pass over a loader: the next batch is the first one of the next epoch."""
        reader = self._reader(loader_name)
        reader.begin(reader.epoch + 1)
        if reader is self.data_loader:
            self._epoch = reader.epoch

    def _reader(self, name: str | None) -> Any:
        if name is None and isinstance(self.data_loader, Reader):
            return self.data_loader
        loaders = self.train_loaders
        name = next(iter(loaders)) if name is None else name
        if name not in loaders:
            raise KeyError(
                f'there is no train loader {name!r}{suggestion(name, loaders)}; '
                + (f'there are {", ".join(loaders)}' if '' not in loaders else 'train_loader is a single one')
            )
        if not self.readers.entries:
            self.open_readers([next(iter(loaders.values()))])
        return self.readers.find(loaders[name], -1)

    def open_readers(self, data_loaders: list[Any]) -> None:
        """Have a reader for each workflow entry, and for each further loader of ``train_loader``."""
        named = {id(loader): name for name, loader in self.train_loaders.items() if not isinstance(loader, NoBatches)}
        rest = [loader for loader in self.train_loaders.values() if id(loader) in named]
        loaders = [*data_loaders, *(each for each in rest if not any(each is entry for entry in data_loaders))]
        self.readers.open(loaders, [named.get(id(loader), '') for loader in loaders])

    # --- saving ------------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Your values that checkpoints should hold, on each rank: tensors and plain Python values."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back what `state_dict` gave."""

    def state_of_run(self) -> dict[str, Any]:
        """What checkpoints hold of an experiment on each rank."""
        if self.is_validating:
            self._log_once(
                'a checkpoint is saved inside valid: a run that resumes from it does not repeat the rest of that '
                'validation'
            )
        read = [reader.dataloader for reader in self.readers.entries if reader.position or reader.epoch]
        loaders = self.train_loaders if self._iter and self.train_loader is not None else {}
        unread = [name for name, loader in loaders.items() if not any(loader is each for each in read)]
        if unread:
            calls = ' and '.join(f'read_batch({name!r})' if name else 'read_batch' for name in unread)
            self._log_once(
                f'{type(self).__name__} has not called {calls}: if it iterates over train_loader by itself, its '
                'place there is not part of checkpoints, and a resumed run reads other batches',
                level=logging.WARNING,
            )
        if self._at_first is not None and type(self).state_dict is Experiment.state_dict:
            for name in self._summaries().changed(self._at_first):
                self._log_once(
                    f'self.{name} has changed since the run began, and checkpoints do not hold it: return what a '
                    'resume needs of it in state_dict, and take it back in load_state_dict'
                )
        objects = stateful(self._own_attributes(), self._saved_otherwise())
        return {
            'experiment': {
                'attributes': {place: state_of_object(value) for place, value in objects},
                'own': self.state_dict(),
            },
        }

    def _log_once(self, text: str, level: int = logging.INFO) -> None:
        """Log once what is not exact after a resume."""
        if text not in self._logged:
            self._logged.add(text)
            self.logger.log(level, '%s', text, extra=NOT_EXACT)

    def _own_attributes(self) -> dict[str, Any]:
        """The attributes that a subclass has set."""
        base = self._base_attributes
        return {name: value for name, value in vars(self).items() if name not in base and not hasattr(Experiment, name)}

    def _saved_otherwise(self) -> set[int]:
        """The ids of what is saved with the model and the optimizers, and of the tensors of further modules."""
        modules = [] if self.model is None else list(self.model.modules())
        others = [each for _, each in stateful(self._own_attributes(), set()) if isinstance(each, nn.Module)]
        tensors = [tensor for each in (*modules[:1], *others) for tensor in (*each.parameters(), *each.buffers())]
        return {id(each) for each in (*named_optimizers(self.optimizer).values(), *modules, *tensors)}

    def _summaries(self) -> Summaries:
        return Summaries(self._own_attributes(), self._saved_otherwise())

    def restore_run(self, own: Mapping[str, Any]) -> None:
        """Restore what `state_of_run` returned; ``own`` is the state of this rank."""
        saved = own.get('experiment', {'attributes': {}, 'own': {}})
        states, objects = saved['attributes'], dict(stateful(self._own_attributes(), self._saved_otherwise()))
        texts = [f'a value of self.{name}, which load_state_dict must take' for name in saved.get('values', ())]
        for place in {**states, **objects}:
            if place not in objects:
                texts.append(f'a state of {place}, which is not there now')
            elif place in states:
                load_state(objects[place], states[place])
            elif state_of_object(objects[place]):  # a loss, for example, has none
                texts.append(f'no state of {place}, which starts afresh')
        for text in texts:
            self.logger.warning('the checkpoint holds %s', text, extra=NOT_EXACT)
        self.load_state_dict(saved['own'])


Experiment.has_own_train = False  # its train counts as the base's does
