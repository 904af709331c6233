"""A sharded model (FSDP2) is saved as a folder, and resumed: on as many processes, on others, with DDP."""

import logging
import os
import signal
import threading
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.distributed.fsdp import FSDPModule
from torch.multiprocessing import ProcessExitedException
from torch.utils.data import Dataset

from runnerkit.checkpoint import Store, find_latest_checkpoint, load_checkpoint, save_checkpoint, why_damaged
from runnerkit.checkpoint import folder as folders
from runnerkit.checkpoint.manifest import read_manifest
from runnerkit.data import build_dataloader
from runnerkit.hooks import CheckpointHook, EMAHook, EvalHook, Hook
from runnerkit.parallel import MMDistributedDataParallel
from runnerkit.parallel.dtensors import is_dtensor, local_part
from runnerkit.runner import EpochBasedRunner

HAS_FSDP2 = hasattr(FSDPModule, 'reset_iter_state')

#: Two ranks make 6 iterations of an epoch, the last with 4 samples; half an epoch is 3.
LENGTH, BATCH, MIDDLE = 44, 4, 3


class Numbered(Dataset):
    def __len__(self):
        return LENGTH

    def __getitem__(self, i):
        return torch.tensor([i / LENGTH, 1.0]) + torch.randn(2) * 0.01, i


class Net(nn.Module):
    """Dropout draws from each rank's own stream, batch norm's statistics are each rank's own, and 9 is odd."""

    def __init__(self):
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(2, 9), nn.BatchNorm1d(9), nn.Linear(9, 1)
        self.dropout = nn.Dropout(0.3)
        self.losses = []

    def forward(self, x):
        return self.last(self.dropout(self.norm(self.first(x)).relu()))

    def train_step(self, data, optimizer=None):
        loss = self(data[0]).square().mean()
        self.losses.append(loss.item())
        return {'loss': loss, 'log_vars': {'loss': loss}, 'num_samples': len(data[0])}

    val_step = train_step


def sharded(model):
    from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method

    fully_shard(model.first)
    fully_shard(model.last)
    fully_shard(model)
    register_fsdp_forward_method(model, 'train_step')
    register_fsdp_forward_method(model, 'val_step')
    return model


class Sees(Hook):
    """Writes down which samples are trained on; stops after so many iterations."""

    def __init__(self, stop):
        self.ends, self.seen = stop, []

    def before_train_iter(self, runner):
        self.seen += runner.data_batch[1].tolist()

    def after_train_iter(self, runner):
        if runner.iter + 1 == self.ends:
            runner.stop('enough')


class Records(logging.Handler):
    def __init__(self):
        super().__init__(logging.INFO)
        self.texts = []

    def emit(self, record):
        self.texts.append(record.getMessage())


def build(folder, wrap, hooks=(), update=None, saving=None, epochs=2):
    """A runner of the model in a wrapper, and the handler of its log."""
    torch.manual_seed(0)
    model = wrap(Net())
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    logger = logging.Logger('sharded')
    records = Records()
    logger.addHandler(records)
    runner = EpochBasedRunner(model, optimizer=optimizer, work_dir=str(folder), logger=logger, max_epochs=epochs)
    saving = {'interval': 1000, 'by_epoch': False, **(saving or {})}
    runner.register_training_hooks({'policy': 'fixed'}, update or {}, CheckpointHook(**saving))
    for hook in hooks:
        runner.register_hook(hook)
    return runner, records.texts


def train(folder, wrap=sharded, stop=None, resume=None, hooks=(), **options):
    """Run, and return what came of it: losses, samples, weights, the log."""
    sees = Sees(stop)
    runner, log = build(folder, wrap, [*hooks, sees], **options)
    if resume is not None:
        runner.resume(str(resume))
    runner.run([build_dataloader(Numbered(), BATCH, 0, seed=5)], [('train', 1)])
    model = runner.model.module if hasattr(runner.model, 'module') else runner.model
    weights = {name: whole(value) for name, value in model.state_dict().items()}
    state = {f'{i}.{key}': whole(v) for i, s in runner.optimizer.state_dict()['state'].items() for key, v in s.items()}
    return {'losses': model.losses, 'seen': sees.seen, 'weights': weights, 'optimizer': state, 'log': log}


def whole(value):
    return value.full_tensor().clone() if is_dtensor(value) else value.clone()


def caught(call):
    try:
        call()
    except Exception as error:
        return f'{type(error).__name__}: {error}'
    return None


# --- two processes, of which all tests look at some of it ------------------------------------------------------------


def two(rank, folder):
    folder = Path(folder)
    found = {'exact': exact(folder), 'wrapped': between_wrappers(folder), 'files': loading(folder)}
    found['alone'] = alone(folder, rank)
    found['full'] = full_disk(folder, rank)
    found['background'] = in_background(folder, rank)
    found['cycle'] = inside_a_cycle(folder)
    found['best'] = best_files(folder)
    found['back'] = going_back(folder)
    return found


def exact(folder):
    """A whole run, with averages; one that stops in the middle of the second epoch, and one that goes on from there."""
    stop = 6 + MIDDLE
    undisturbed = train(folder / 'whole', hooks=[EMAHook()])
    begun = train(folder / 'part', stop=stop, hooks=[EMAHook()])
    latest = find_latest_checkpoint(folder / 'part')
    resumed = train(folder / 'part', resume=latest, hooks=[EMAHook()])
    return undisturbed, begun, resumed


def between_wrappers(folder):
    """From the middle of an epoch with one wrapper to its end with the other."""
    found = {}
    for name, one, other in (('to DDP', sharded, ddp), ('to FSDP2', ddp, sharded)):
        begun = train(folder / name, one, stop=MIDDLE, epochs=1)
        resumed = train(folder / name, other, resume=find_latest_checkpoint(folder / name), epochs=1)
        found[name] = begun, resumed, train(folder / f'{name} whole', one, epochs=1)
    return found


def ddp(model):
    return MMDistributedDataParallel(model)


def loading(folder):
    """The weights of a folder and of a file, loaded into a sharded model: each rank keeps its part."""
    save_checkpoint(Net(), folder / 'net.pth')
    models = []
    for path in (folder / 'net.pth', folder / 'to DDP' / 'latest.pth'):
        model = sharded(Net())
        load_checkpoint(model, path, strict=True)
        state = model.state_dict().items()
        models.append({name: (whole(value), tuple(local_part(value).shape)) for name, value in state})
    return models


def alone(folder, rank):
    """What one rank alone cannot do is refused at once; the other one is elsewhere."""
    runner, _ = build(folder / 'alone', sharded)
    if rank:
        return rank, None
    calls = (lambda: runner.save_checkpoint(str(folder / 'alone')), lambda: save_checkpoint(runner.model, 'x.pth'))
    return rank, [caught(call) for call in calls]


def full_disk(folder, rank):
    """The disk of the second rank's machine is full, once; the run goes on, and the next save succeeds."""
    real, count = folders._ListedDiskFile.write, []

    def write(self, data):
        count.append(1)
        if rank == 1 and len(count) == 3:
            self.error = OSError(28, 'No space left on device')
            raise self.error
        return real(self, data)

    folders._ListedDiskFile.write = write
    try:
        result = train(folder / 'full', stop=4, saving={'interval': 2, 'save_last': False})
    finally:
        folders._ListedDiskFile.write = real
    stopped = caught(lambda: failing(folder, rank, real))
    return result['log'], sorted(os.listdir(folder / 'full')), stopped


def failing(folder, rank, real):
    def write(self, data):
        if rank == 1:
            raise RuntimeError('a defect')
        return real(self, data)

    folders._ListedDiskFile.write = write
    try:
        train(folder / 'failing', stop=2, saving={'interval': 2})
    finally:
        folders._ListedDiskFile.write = real


class Watches(Hook):
    """Which checkpoints there are while others are being written, and in which threads hooks hear of them."""

    def __init__(self):
        self.heard = []

    def after_save(self, runner):
        where = threading.current_thread() is threading.main_thread()
        self.heard.append((runner.iter, os.path.basename(runner.meta['hook_msgs']['last_ckpt']), where))


def in_background(folder, rank):
    """Saved beside the training, every second iteration: what each holds, and what a run that goes on from it does."""
    watches = Watches()
    saving = {'interval': 2, 'async_save': True, 'max_keep_ckpts': 2}
    result = train(folder / 'async', saving=saving, hooks=[watches], epochs=1)
    other = train(folder / 'sync', saving={'interval': 2, 'max_keep_ckpts': 2}, epochs=1)
    names = sorted(os.listdir(folder / 'async'))
    resumed = train(folder / 'async again', resume=folder / 'async/iter_4.pth', epochs=1)
    threads = [thread.name for thread in threading.enumerate() if thread.name.startswith('checkpoint')]
    return result, other, resumed, names, watches.heard, threads


def inside_a_cycle(folder):
    """Stopped between the losses of one update, whose gradients are summed over the ranks already."""
    update = {'cumulative_iters': 4}
    undisturbed = train(folder / 'cycle whole', update=update, epochs=1)
    train(folder / 'cycle', stop=2, update=update, epochs=1)
    resumed = train(folder / 'cycle', resume=find_latest_checkpoint(folder / 'cycle'), update=update, epochs=1)

    class Keeps(Net):
        """As FSDP2 does in a wrapper with no_sync: gradients are summed over the ranks at the end of the cycle."""

        @contextmanager
        def no_sync(self):
            self.set_requires_gradient_sync(False)
            yield
            self.set_requires_gradient_sync(True)

    begun, told = (
        train(folder / 'kept', lambda _: sharded(Keeps()), stop=stop, resume=resume, update=update, epochs=1)['log']
        for stop, resume in ((2, None), (None, folder / 'kept/latest.pth'))
    )
    crossed = []
    for one, other in ((sharded, ddp), (ddp, sharded)):
        name = folder / f'cycle from {one.__name__}'
        train(name, one, stop=2, update=update, epochs=1)
        crossed.append(train(name, other, resume=find_latest_checkpoint(name), update=update, epochs=1))
    return undisturbed, resumed, begun, told, crossed


def best_files(folder):
    """The best checkpoint of each epoch is a folder, and takes the place of the former one."""
    scores = iter([1.0, 0.5, 0.7])

    def in_one(model):
        """A single unit, whose weights stay gathered after an evaluation."""
        from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method

        fully_shard(model)
        register_fsdp_forward_method(model, 'train_step')
        return model

    class Evaluates(EvalHook):
        def _do_evaluate(self, runner):
            with torch.no_grad():
                runner.model(torch.ones(4, 2))
            self._save_ckpt(runner, next(scores))

    loader = build_dataloader(Numbered(), BATCH, 0, seed=5)
    hook = Evaluates(loader, save_best='loss', rule='less')
    saving = {'interval': 1, 'by_epoch': True, 'max_keep_ckpts': 1}
    train(folder / 'best', in_one, hooks=[hook], epochs=3, saving=saving)
    return sorted(os.listdir(folder / 'best')), [why_damaged(path) for path in (folder / 'best').glob('*.pth')]


class GoesBack(Hook):
    """Spoils the weights once, and goes back to the last checkpoint."""

    is_done = False

    def after_train_iter(self, runner):
        if runner.iter == 3 and not self.is_done:
            self.is_done = True
            with torch.no_grad():
                for parameter in runner.model.parameters():
                    parameter.fill_(7)
            runner.roll_back(runner.last_checkpoint())


def going_back(folder):
    saving = {'interval': 2, 'async_save': True}
    return train(folder / 'back', hooks=[GoesBack()], saving=saving, epochs=1), train(folder / 'not back', epochs=1)


@pytest.fixture(scope='module')
def ranks(on_ranks, tmp_path_factory):
    folder = tmp_path_factory.mktemp('two')
    return folder, on_ranks(__file__, 'two', str(folder))


def equal(one, other):
    return one.keys() == other.keys() and all(torch.equal(value, other[name]) for name, value in one.items())


@pytest.mark.skipif(not HAS_FSDP2, reason='FSDP2 computes other weights with this torch')
def test_a_run_resumed_in_the_middle_of_an_epoch_is_exact(ranks):
    for found in ranks[1]:
        undisturbed, begun, resumed = found['exact']
        assert len(begun['losses']) == 6 + MIDDLE
        assert begun['losses'] + resumed['losses'] == undisturbed['losses']
        assert begun['seen'] + resumed['seen'] == undisturbed['seen']
        assert equal(resumed['weights'], undisturbed['weights'])
        assert equal(resumed['optimizer'], undisturbed['optimizer'])
        assert not [text for text in resumed['log'] if 'has changed' in text or 'not exact' in text]


def test_each_rank_has_written_its_part_and_has_its_own_statistics(ranks):
    folder, (one, other) = ranks
    files = read_manifest(folder / 'whole/iter_12.pth')
    assert [name for name in files if name.endswith('.distcp')] == ['__0_0.distcp', '__1_0.distcp']
    mean = 'norm.running_mean'
    means = [found['exact'][0]['weights'][mean] for found in (one, other)]
    assert not torch.equal(*means)
    saved = load_checkpoint(Net(), folder / 'whole/iter_12.pth')['state_dict']
    assert torch.equal(saved[mean], means[0])


@pytest.mark.parametrize('name', ['to DDP', 'to FSDP2'])
def test_a_run_goes_on_with_the_other_wrapper(ranks, name):
    seen = []
    for found in ranks[1]:
        begun, resumed, undisturbed = found['wrapped'][name]
        assert begun['losses'] + resumed['losses'] == pytest.approx(undisturbed['losses'], rel=1e-4)
        for key, value in undisturbed['weights'].items():
            if 'running' not in key:
                torch.testing.assert_close(resumed['weights'][key], value, rtol=1e-4, atol=1e-6)
        seen += begun['seen'] + resumed['seen']
    assert sorted(seen) == list(range(LENGTH))


def test_weights_of_files_and_folders_are_loaded_into_a_sharded_model(ranks):
    folder, (one, other) = ranks
    for index, path in enumerate((folder / 'net.pth', folder / 'to DDP/latest.pth')):
        saved = load_checkpoint(Net(), path)['state_dict']
        parts = [found['files'][index] for found in (one, other)]
        for name, value in saved.items():
            assert all(torch.equal(part[name][0], value) for part in parts), name
        assert [part['first.weight'][1] for part in parts] == [(5, 2), (4, 2)]


def test_one_rank_alone_is_refused_at_once_with_the_way_out(ranks):
    (_, told), (_, nothing) = (found['alone'] for found in ranks[1])
    assert nothing is None
    for each in told:
        assert each.startswith('RuntimeError: save_checkpoint writes what one process has')
        assert 'call runner.save() on every rank' in each


def test_a_full_disk_of_one_rank_is_told_by_rank_0_and_the_next_save_succeeds(ranks):
    folder, found = ranks
    for rank, (log, names, stopped) in enumerate(each['full'] for each in found):
        failed = [text for text in log if 'could not be saved' in text]
        assert len(failed) == (rank == 0)
        assert all('saved: rank 1: No space left on device' in text for text in failed)
        assert names == ['iter_4.pth', 'latest.pth']
        assert 'a defect' in stopped
    assert why_damaged(folder / 'full/latest.pth') is None
    assert not list((folder / 'failing').glob('.*.tmp'))


def test_a_save_in_the_background_holds_the_state_at_its_moment(ranks):
    folder, found = ranks
    for rank, each in enumerate(found):
        result, other, resumed, names, heard, threads = each['background']
        assert result['losses'] == other['losses']
        assert result['losses'][4:] == resumed['losses']
        assert equal(result['weights'], resumed['weights'])
        assert names == ['iter_4.pth', 'iter_6.pth', 'latest.pth']
        assert threads == []
        assert [name for _, name, _ in heard] == (['iter_2.pth', 'iter_4.pth', 'iter_6.pth'] if rank == 0 else [])
        assert all(is_main for *_, is_main in heard)
    for name in ('iter_4.pth', 'iter_6.pth'):
        one, other = (load_checkpoint(Net(), folder / place / name) for place in ('async', 'sync'))
        assert equal(one['state_dict'], other['state_dict'])


def test_gradients_of_an_unfinished_cycle_go_on(ranks):
    for found in ranks[1]:
        undisturbed, resumed, *logs, crossed = found['cycle']
        assert undisturbed['losses'][2:] == resumed['losses']
        assert equal(undisturbed['weights'], resumed['weights'])
        for log, told in zip(logs, ['after 2 of the losses of one update', 'lacks the gradients'], strict=True):
            assert len([text for text in log if told in text]) == 1
        assert not [text for text in resumed['log'] if 'lacks the gradients' in text]
        for other in crossed:  # to the other wrapper, in the middle of the cycle
            assert other['losses'] == pytest.approx(undisturbed['losses'][2:], rel=1e-4)
            torch.testing.assert_close(other['weights']['first.weight'], undisturbed['weights']['first.weight'])


def test_the_best_checkpoint_is_a_folder_too(ranks):
    for names, damaged in (found['best'] for found in ranks[1]):
        assert names == ['best_loss_epoch_2.pth', 'epoch_3.pth', 'latest.pth']
        assert damaged == [None] * 3


def test_a_run_goes_back_to_a_folder(ranks):
    for back, undisturbed in (found['back'] for found in ranks[1]):
        assert len(back['losses']) == len(undisturbed['losses']) + 2
        assert equal(back['weights'], undisturbed['weights'])


# --- a process that dies ---------------------------------------------------------------------------------------------


def killed(rank, folder):
    """The second save ends in the middle of a file of the second rank."""
    real = folders._ListedDiskFile.sync

    def sync(self):
        real(self)
        if rank == 1 and any(Path(folder).glob('.iter_4.pth.*.tmp')):
            os.ftruncate(self._descriptor, self.listed.size // 2)
            os.kill(os.getpid(), signal.SIGKILL)

    folders._ListedDiskFile.sync = sync
    train(Path(folder), saving={'interval': 2}, epochs=1)


def test_a_rank_killed_while_it_writes_leaves_the_checkpoint_before(on_ranks, tmp_path):
    with pytest.raises(ProcessExitedException):
        on_ranks(__file__, 'killed', str(tmp_path))
    latest = find_latest_checkpoint(tmp_path)
    assert (latest.name, why_damaged(latest)) == ('iter_2.pth', None)
    [half] = tmp_path.glob('.iter_4.pth.*.tmp')
    assert (half / '__1_0.distcp').stat().st_size > 0
    assert Store(tmp_path).sweep() == [half.name]
    assert find_latest_checkpoint(tmp_path).samefile(latest)


# --- another number of processes -------------------------------------------------------------------------------------


def of_an_epoch(rank, folder, stop, resume):
    return train(Path(folder), stop=stop, resume=resume, epochs=1)


def test_two_then_four_then_one_process_see_every_sample_of_the_epoch_once(on_ranks, tmp_path):
    two = on_ranks(__file__, 'of_an_epoch', str(tmp_path), 1, None)
    four = on_ranks(__file__, 'of_an_epoch', str(tmp_path), 1, str(find_latest_checkpoint(tmp_path)), world_size=4)
    one = train(tmp_path, wrap=lambda model: model, resume=find_latest_checkpoint(tmp_path), epochs=1)
    parts = [sum((each['seen'] for each in ranks), []) for ranks in (two, four, [one])]
    assert [len(part) for part in parts] == [8, 16, 20]
    assert sorted(sum(parts, [])) == list(range(LENGTH))
    assert all(torch.equal(each['weights']['last.weight'], four[0]['weights']['last.weight']) for each in four)
    assert any('new ranks start with random states derived from those of rank 0' in text for text in four[0]['log'])
    assert any('dropped' in text for text in one['log'])
