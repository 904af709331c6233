"""The hook that saves checkpoints."""

from __future__ import annotations

import errno
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from runnerkit.checkpoint import NotSavedError
from runnerkit.checkpoint.store import BY_EPOCH, BY_ITER, number_in, why_file_not_finite
from runnerkit.distributed import allreduce_params, get_dist_info
from runnerkit.fileio.paths import lies_in
from runnerkit.hooks.hook import HOOKS, Hook, RunnerView
from runnerkit.hooks.storage import StoringHook
from runnerkit.parallel.dtensors import is_sharded
from runnerkit.utils.exceptions import check_keywords, one_line
from runnerkit.utils.logging import DETAIL, shortened
from runnerkit.utils.suggest import suggestion

_NO_ROOM = 'Make room there, or save less often (interval) and keep fewer (max_keep_ckpts).'
_NO_FOLDER = 'Mount or make the folder again, or give another work_dir or out_dir.'
_NO_RIGHT = 'Make the folder writable, or give another work_dir or out_dir.'
_REMEDIES = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EFBIG), _NO_ROOM),
    **dict.fromkeys((errno.ENOENT, errno.ENOTDIR, errno.EEXIST, errno.ESTALE), _NO_FOLDER),
    **dict.fromkeys((errno.EACCES, errno.EPERM, errno.EROFS), _NO_RIGHT),
}


@HOOKS.register_module()
class CheckpointHook(StoringHook):
    """Saves a checkpoint every ``interval`` epochs or iterations, and at the end.

    It is called after all other hooks of a point, so what it saves includes the evaluation and the logs of that moment.
    If the run fails in an evaluation, or in another hook after an epoch, what is trained is saved first. The file's
    ``meta['not_evaluated']`` has the error, and a run that resumes the file warns of it. With several ranks the first
    one saves alone.

    Args:
        interval: epochs or iterations between two checkpoints; -1 saves only the last.
        by_epoch: True counts epochs, False iterations. Files are called ``epoch_<n>.pth`` and ``iter_<n>.pth``.
        save_optimizer: whether the optimizers' states are saved; without them a run cannot be resumed exactly.
        out_dir: save to ``<out_dir>/<name of the work dir>`` instead of the work dir.
        max_keep_ckpts: how many checkpoints to keep; -1 keeps all. Old ones are deleted when the new one is safe, and
            so is a checkpoint that a stopped run saved between two intervals. Those with NaN or infinite weights,
            optimizer states or training losses replace none that is finite: only the newest of them is kept, next to
            the others.
        save_last: whether to save the end of the run, whatever the interval.
        sync_buffer: average the model's buffers (BatchNorm's) over the ranks before saving.
        file_client_args: arguments of `FileClient`, which writes and deletes the files; None: chosen by ``out_dir``,
            which may be a URL.
        on_error: ``'continue'`` or ``'stop'``, if a checkpoint cannot be written, for example because the disk is full.
            ``'continue'`` continues training, tries again at the next interval, and lets the run fail at its end if the
            last checkpoint is missing. ``'stop'`` ends the run at once. Existing checkpoints are kept in both cases.
        async_save: write in the background; training waits only while the state is copied in memory (this needs the
            same amount of memory again). ``after_save`` is called, and errors are reported, before the first iteration
            after the file is written. The end of the run waits for it, also after a signal.
        **kwargs: passed to ``runner.save_checkpoint``, e.g. ``filename_tmpl`` or ``create_symlink``.
    """

    runs_last = True
    _saved_at: int | None = None  # the iterations done at the last save
    _saved_as: str | None = None  # its path
    _saved_before: tuple[int | None, str | None] = (None, None)  # these two of the save before
    _failure: str | None = None  # why the last save failed, if it did
    _tried_at: int | None = None  # those done when the run began, or was last to be saved
    _cut_by: BaseException | None = None  # what has ended an evaluation

    def __init__(
        self,
        interval: int = -1,
        by_epoch: bool = True,
        save_optimizer: bool = True,
        out_dir: str | None = None,
        max_keep_ckpts: int = -1,
        save_last: bool = True,
        sync_buffer: bool = False,
        file_client_args: dict[str, Any] | None = None,
        on_error: str = 'continue',
        async_save: bool = False,
        **kwargs: Any,
    ) -> None:
        for name, number in (('interval', interval), ('max_keep_ckpts', max_keep_ckpts)):
            if not isinstance(number, int) or isinstance(number, bool):
                raise TypeError(f'{name} must be a whole number, but got {number!r}')
        if not isinstance(async_save, bool):
            raise TypeError(f'async_save must be True or False, but got {async_save!r}')
        if on_error not in ('continue', 'stop'):
            hint = suggestion(str(on_error), ('continue', 'stop'))
            raise ValueError(f"on_error must be 'continue' or 'stop', but got {on_error!r}{hint}")
        check_template(kwargs.get('filename_tmpl'))
        self.interval = interval
        self.by_epoch = by_epoch
        self.save_optimizer = save_optimizer
        self.out_dir = out_dir
        self.max_keep_ckpts = max_keep_ckpts
        self.save_last = save_last
        self.sync_buffer = sync_buffer
        self.file_client_args = file_client_args
        self.on_error = on_error
        self.async_save = async_save
        self._missed: set[int] = set()  # numbers of the checkpoints that could not be written, or are deleted
        self._non_finite: int | None = None  # the number of the last one, if it is not finite
        self._counted: dict[int, bool] = {}  # which of those that were looked at are there and finite
        self._stops: list[str] = []  # names of those saved at the end of stopped runs, until there is a newer one
        self.args = kwargs

    def before_run(self, runner: RunnerView) -> None:
        check_keywords(self.args, runner.save_checkpoint, 'CheckpointHook', type(self).__init__)
        store = self.claim_store(runner)
        self._failure, self._cut_by, self._tried_at = None, None, runner.completed_iters
        if is_sharded(runner.model):
            store.check_takes_folders()
        if not store.is_local and store.client is not None and not store.client.allow_symlink:
            if self.args.get('create_symlink'):
                runner.logger.warning('create_symlink has no effect: %s has no links', store.writer)
            self.args['create_symlink'] = False
        if runner.rank == 0 and (swept := store.sweep()):
            runner.logger.info('half-written files of a killed run are deleted: %s', shortened(swept))
        expected = DETAIL if store.place == runner.work_dir else None
        runner.logger.info('Checkpoints will be saved to %s by %s', store, store.writer, extra=expected)

    def after_train_epoch(self, runner: RunnerView) -> None:
        if self.by_epoch and self._is_due_by_epoch(runner):
            self._save_checkpoint(runner)

    def after_train_iter(self, runner: RunnerView) -> None:
        # This is called in every iteration.
        if not self.by_epoch and self._is_due_by_iter(runner):
            self._save_checkpoint(runner)

    @contextmanager
    def around_val(self, runner: RunnerView) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            self._cut_by = error
            raise

    def before_resume(self, runner: RunnerView, checkpoint: dict[str, Any]) -> None:
        # The run may go back: what it has saved since is of another branch.
        self._saved_at = self._saved_as = self._failure = self._tried_at = self._cut_by = None
        text = (checkpoint.get('meta') or {}).get('not_evaluated')
        if text is not None:
            runner.logger.warning(
                'the checkpoint was saved when a run failed (%s). It may have no scores, and hooks that came later at '
                'that point were not called. `runnerkit test` evaluates it',
                text,
                extra={'exactness': True},
            )

    def after_resume(self, runner: RunnerView) -> None:
        """Finish the save of the checkpoint, of a run that was killed before it moved the link or deleted others."""
        store, last = self.store(runner), runner.meta['hook_msgs'].get('last_ckpt')
        if runner.rank > 0 or last is None or not store.is_local or not lies_in(last, store.place):
            return
        name = Path(last).name
        is_newest = store.finish(name, self.args.get('create_symlink', True))
        number = runner.completed_epochs if self.by_epoch else runner.completed_iters
        is_regular = name == self._name_of(number) and name not in self._stops
        if is_newest and is_regular and self.max_keep_ckpts > 0:
            self._delete_surplus(runner, number, is_finite=True)

    def after_run(self, runner: RunnerView) -> None:
        error = None if runner.outcome is None else runner.outcome.error
        # It ended an evaluation, or came in another hook at the end of an epoch: before a save that was due then.
        at_end = runner.by_epoch and runner.completed_epochs > runner.epoch and not isinstance(error, KeyboardInterrupt)
        if error is not None and (error is self._cut_by or at_end) and self._tried_at != runner.completed_iters:
            self._save_what_is_trained(runner, error)
        # A run that was stopped on purpose is also saved; its end may lie between two intervals.
        outcome = runner.outcome
        stopped = outcome is not None and outcome.kind == 'stopped' and error is None
        if self.save_last and stopped and self._saved_at != runner.completed_iters:
            runner.logger.info('Saving checkpoint at %d iterations', runner.completed_iters)
            self._save_between(runner)
        if self._failure is not None and outcome is not None and outcome.ended_well:
            last = runner.meta['hook_msgs'].get('last_ckpt')
            raise NotSavedError(
                f'the run is over, but its last checkpoint is missing: {self._failure}. '
                + ('No other was saved' if last is None else f'Resume from {last} (--auto-resume) when that is fixed')
            )

    def save_now(self, runner: RunnerView, keep: bool = True) -> str:
        """Save between two intervals, as ``iter_<n>.pth``; every rank calls it.

        Args:
            runner: the run.
            keep: False deletes the file when the next regular one is safe, if ``max_keep_ckpts`` deletes any.

        Returns:
            its path.

        Raises:
            NotSavedError: the storage could not take it.
        """
        last = runner.last_checkpoint()
        if last is not None and (self._saved_at, self._saved_as) == (runner.completed_iters, last):
            return last
        saved = self._save_between(runner, keep)
        if saved is None:
            raise NotSavedError(self._failure)
        return saved

    def _save_between(self, runner: RunnerView, keep: bool = False, **options: Any) -> str | None:
        """Save between two intervals."""
        name = BY_ITER.format(runner.completed_iters)
        if not keep and name not in self._stops:
            self._stops.append(name)  # before the write: the run that resumes from this file must know its name
        return self._save(runner, name, {**self.args, 'filename_tmpl': name, **options})

    def state_dict(self) -> dict[str, Any]:
        """Return the checkpoints that could not be written, and those of stopped runs."""
        return {'missed': sorted(self._missed), 'stops': list(self._stops)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        # These files will be deleted: a checkpoint must not be able to name anything but checkpoints of this folder.
        self._stops = [name for name in state.get('stops', ()) if number_in(str(name)) is not None]
        self._missed = set(state['missed'])

    def _save_what_is_trained(self, runner: RunnerView, error: BaseException) -> None:
        """Save the run that fails, on the first rank alone: others may have failed elsewhere, or wait."""
        if is_sharded(runner.model):
            runner.logger.error(
                'the run fails before a checkpoint is saved, and a sharded model can only be saved by all ranks'
            )
            return
        if runner.rank > 0:
            return
        if self.by_epoch:
            is_due = runner.completed_epochs > runner.epoch and self._is_due_by_epoch(runner)
        else:
            is_due = runner.completed_iters > runner.iter and self._is_due_by_iter(runner)
        options: dict[str, Any] = {'meta': {'not_evaluated': one_line(error)[:1000]}, 'alone': True}
        if is_due:
            name = self._due_name(runner)
            path = self._save(runner, name, {**self.args, 'filename_tmpl': name, **options})
        else:
            path = self._save_between(runner, **options)  # as of a run that was stopped
        if path is not None:
            runner.logger.error('the run fails; what it has trained until then is saved: %s', path)

    def _is_due_by_epoch(self, runner: RunnerView) -> bool:
        # An epoch that ``max_iters`` cuts short is never completed, and is the last one.
        is_last = self.is_last_epoch(runner) or runner.completed_epochs == runner.epoch
        return self.every_n_epochs(runner, self.interval) or (self.save_last and is_last)

    def _is_due_by_iter(self, runner: RunnerView) -> bool:
        done = runner.iter + 1
        return (self.interval > 0 and done % self.interval == 0) or (self.save_last and done == runner.max_iters)

    def _save_checkpoint(self, runner: RunnerView) -> None:
        number, unit = (runner.epoch + 1, 'epochs') if self.by_epoch else (runner.iter + 1, 'iterations')
        # In MMCV's words, which only the log file of a run by config has.
        extra = None if runner.evaluates_on is None else DETAIL
        runner.logger.info('Saving checkpoint at %d %s', number, unit, extra=extra)
        args, name = dict(self.args), self._due_name(runner)
        if runner.by_epoch and not self.by_epoch:
            args['filename_tmpl'] = name  # the runner would number it by epochs
        args.update(async_save=self.async_save, after_write=partial(self._delete_old, runner, number))
        self._missed.discard(number)
        self._save(runner, name, args, number)

    def _due_name(self, runner: RunnerView) -> str:
        return self._name_of(runner.epoch + 1 if self.by_epoch else runner.iter + 1)

    def _save(self, runner: RunnerView, name: str, args: dict[str, Any], number: int | None = None) -> str | None:
        if self.sync_buffer and not args.get('alone'):
            allreduce_params(runner.model.buffers())
        store = self.store(runner)
        self._tried_at = runner.completed_iters
        if runner.rank == 0 and self._saved_at is not None and not store.exists():
            runner.logger.warning('%s is gone, with the checkpoints in it; it is created again', store)
        saved = runner.save(
            store.place,
            save_optimizer=self.save_optimizer,
            file_client_args=self.file_client_args,
            messages={'last_ckpt': store.path(name)},
            on_error=partial(self._report_failed_save, runner, store.path(name), number),
            caller=self,
            **args,
        )
        if saved is not None:
            self._saved_before = self._saved_at, self._saved_as
            self._failure, self._saved_at, self._saved_as = None, runner.completed_iters, store.path(name)
        return saved

    def _report_failed_save(self, runner: RunnerView, path: str, number: int | None, error: NotSavedError) -> None:
        """Log that the checkpoint ``path`` is missing, or stop."""
        if number is not None:
            self._missed.add(number)
        if self._saved_as == path and get_dist_info()[1] == 1:  # it had begun in the background; other ranks go on
            self._saved_at, self._saved_as = self._saved_before
        self._failure = f'{path} could not be saved: {error.strerror or error}'
        remedy = _REMEDIES.get(error.errno or 0, 'Look whether the disk or storage is in order.')
        if self.on_error == 'stop':
            raise NotSavedError(f'{self._failure}; the checkpoints before it are whole. {remedy}') from error
        if runner.rank > 0:
            return  # rank 0 says it
        runner.logger.error(
            '%s. %s The checkpoints before it are whole and are kept. Training continues; the next save tries again',
            self._failure,
            remedy,
        )

    def _delete_old(self, runner: RunnerView, newest: int) -> None:
        """Delete surplus checkpoints, on the first rank, now that the file of epoch (iteration) ``newest`` exists."""
        newest_name = self._name_of(newest)
        is_finite = runner.last_finite == self.store(runner).path(newest_name)
        useless, self._non_finite = self._non_finite, None if is_finite else newest
        self._counted[newest] = is_finite
        if self.max_keep_ckpts <= 0:
            return
        if useless not in (None, newest):
            self._delete_quietly(runner, self._name_of(useless))
            self._missed.add(useless)
        self._delete_surplus(runner, newest, is_finite)

    def _delete_surplus(self, runner: RunnerView, newest: int, is_finite: bool) -> None:
        """Delete what ``max_keep_ckpts`` does not keep next to ``newest``."""
        newest_name = self._name_of(newest)
        if is_finite:
            for name in self._stops:
                if name != newest_name:
                    self._delete_quietly(runner, name)
            self._stops = []
        step = self.interval if self.interval > 0 else 1
        last_regular = newest // step * step
        # A last checkpoint between two intervals counts as one of those to keep. Those that could not be written, or
        # are not finite, do not count.
        to_keep, surplus = self.max_keep_ckpts - (newest != last_regular and is_finite), []
        for number in range(last_regular, 0, -step):
            missed = number in self._missed
            if to_keep > 0:
                to_keep -= not missed and self._counts(runner, number)
            elif self._delete_quietly(runner, self._name_of(number), only_look=True):
                surplus.append(number)
            elif not missed:
                break
        # From old to new: a run that is killed in between leaves no gap, at which a later one would end.
        for number in reversed(surplus):
            self._delete_quietly(runner, self._name_of(number))

    def _counts(self, runner: RunnerView, number: int) -> bool:
        """Whether a checkpoint is there and finite, as one of an earlier run may not be; looked up once, on disks only.
        One that is not finite is deleted."""
        if number not in self._counted and (store := self.store(runner)).is_local:
            path = Path(store.path(self._name_of(number)))
            is_useless = why_file_not_finite(path) is not None
            self._counted[number] = path.exists() and not is_useless
            if is_useless:
                self._delete_quietly(runner, path.name)
        return self._counted.get(number, True)

    def _name_of(self, number: int) -> str:
        template: str = self.args.get('filename_tmpl', BY_EPOCH if self.by_epoch else BY_ITER)
        return template.format(number)


def saves_by_epoch(hooks: Iterable[Hook]) -> bool:
    """Whether no `CheckpointHook` among ``hooks`` saves by iteration."""
    return all(hook.by_epoch for hook in hooks if isinstance(hook, CheckpointHook))


def check_template(template: Any) -> None:
    """Whether the names of files that ``template`` makes differ; None is fine."""
    if not isinstance(template, str):
        return
    try:
        differ = template.format(1) != template.format(2)
    except (ValueError, IndexError, KeyError) as error:
        raise ValueError(f"filename_tmpl must be like 'epoch_{{}}.pth', but got {template!r}: {error}") from None
    if not differ:
        raise ValueError(
            f"filename_tmpl must have {{}} for the number, as in 'epoch_{{}}.pth', but got {template!r}: each "
            'checkpoint would overwrite the one before'
        )
