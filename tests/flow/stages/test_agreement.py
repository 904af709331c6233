"""Ranks that do not have the same config or work dir."""

import logging
import os
from pathlib import Path

from runnerkit.config import Config
from runnerkit.distributed import broadcast_object
from runnerkit.flow import Context, Flow, Instance, Options
from runnerkit.flow.stages import agreement
from runnerkit.flow.stages.agreement import check_same_config, check_shared, common_settings

RUN = {
    'model': {'type': 'support.Tiny'},
    'data': {'samples_per_gpu': 4, 'train': {'type': 'support.Noisy', 'length': 8}},
    'runner': {'type': 'EpochBasedRunner', 'max_epochs': 1},
}


def test_what_is_built_is_compared_but_no_paths_and_no_shares_of_data_sets():
    cfg = Config(
        {
            'optimizer': {'type': 'SGD', 'lr': 0.1, 'betas': (0.9, 0.99)},
            'custom_hooks': [],
            'model': {'type': Config},
            'data': {'samples_per_gpu': 2, 'train': {'type': 'A', 'rank': 0, 'root': '/a'}},
            'load_from': '/a/file.pth',
            'own': 1,
        }
    )
    cfg.update(seed=3, work_dir='a', dist_params={'rank': 1})
    found = [*common_settings(Context(cfg, Options(device='cuda:1', overfit=8, resume_from='/a')))]
    assert [each for each in found if 'config' in each] == [
        "('config', 'optimizer', 'type') SGD",
        "('config', 'optimizer', 'lr') 0.1",
        "('config', 'optimizer', 'betas', 0) 0.9",
        "('config', 'optimizer', 'betas', 1) 0.99",
        "('config', 'custom_hooks') []",
        "('config', 'model', 'type') type",
        "('config', 'data', 'samples_per_gpu') 2",
        "('config', 'data', 'train', 'type') A",
    ]
    assert "('flags', 'overfit') 8" in found
    assert "('flags', 'if_used') None" in found
    assert not [each for each in found if any(repr(name) in each for name in agreement.OWN)]


def test_on_two_ranks(tmp_path, on_ranks):
    here, there = on_ranks(__file__, 'on_rank', str(tmp_path))
    assert here.pop('jobs') == ['torchrun of rank 0', 'torchrun of rank 1']
    there.pop('jobs')
    assert here.pop('place') == there.pop('place') == str(tmp_path / '0')
    assert not (tmp_path / '1').exists()
    different = (
        'WrongValue: the ranks have different configs or flags: start all of them with the same config file, '
        '--cfg-options and flags. Compare what `runnerkit print-config CONFIG` prints on each machine'
    )
    unshared = f'some ranks do not see the files of rank 0 in the work dir {tmp_path}/0: '
    way_out = 'Choose a folder that all machines share (--work-dir, or checkpoint_config.out_dir)'
    sharded = f'FSDP2 saves sharded checkpoints, to which all ranks write. {way_out}'
    run_unshared = here.pop('run FSDP2')
    assert run_unshared == f'FileNotFoundError: {unshared}{sharded}'.replace('/0:', '/run:')
    assert here == {
        'alike': '',
        'lr': different,
        'flag': different,
        'root': '',
        'DDP': f'{unshared}such a run cannot be resumed. {way_out}',
        'FSDP2, out_dir': '',
        'FSDP2, seen': '',
        'FSDP2': f'FileNotFoundError: {unshared}{sharded}',
        'run DDP': different,
    }
    refused = [name for name, text in there.items() if text.startswith('ToldByFirstRank') and 'of rank 0' in text]
    assert refused == ['lr', 'flag', 'FSDP2', 'run DDP', 'run FSDP2']
    assert there['alike'] == there['root'] == ''


def on_rank(rank, folder):
    found = {}
    records = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: records.append(record.getMessage())

    def note(name, call):
        records.clear()
        try:
            call()
        except (OSError, ValueError, RuntimeError) as error:
            records.append(f'{type(error).__name__}: {error}')
        found[name] = ''.join(records)

    for name, cfg, options in (
        ('alike', {'optimizer': {'lr': 0.1}, 'seed': rank}, Options(device=f'cpu:{rank}')),
        ('lr', {'optimizer': {'lr': 0.1 + 0.1 * rank}}, Options()),
        ('flag', {'optimizer': {'lr': 0.1}}, Options(overfit=4 if rank == 0 else None)),
        ('root', {'data': {'root': f'/data/{rank}'}}, Options()),
    ):
        context = Context(Config(cfg), options, rank=rank, world_size=2)
        note(name, lambda: check_same_config(context))  # noqa: B023
    context = Context(Config({'work_dir': f'{folder}/{rank}'}), Options(), rank=rank, world_size=2)
    Instance(None).open_work_dir(context)
    found['place'] = str(context.work_dir)
    context.logger.addHandler(handler)
    agreement._PATIENCE = 0.1
    for name, wrapper, out_dir, seen_as in (
        ('DDP', 'DDP', None, rank),
        ('FSDP2, out_dir', 'FSDP2', 'x', rank),
        ('FSDP2, seen', 'FSDP2', None, 0),
        ('FSDP2', 'FSDP2', None, rank),
    ):
        context.cfg.update(model_wrapper={'type': wrapper}, checkpoint_config={'out_dir': out_dir})
        log = Path(folder, str(seen_as), f'{context.timestamp}.log')
        note(name, lambda: check_shared(context, log))  # noqa: B023
    broadcast_object(0)  # before rank 0 gives the work dir back
    context.closing.close()
    context.logger.removeHandler(handler)
    os.environ.update(TORCHELASTIC_RESTART_COUNT='0', TORCHELASTIC_RUN_ID=f'of rank {rank}')
    if rank:  # on its own disk, there is another folder of that name
        agreement.check_shared = lambda context, file: check_shared(context, Path('not here'))
    for name, lr in (('DDP', 0.1 + 0.1 * rank), ('FSDP2', 0.1)):
        cfg = {**RUN, 'optimizer': {'type': 'SGD', 'lr': lr}, 'model_wrapper': {'type': name}}
        flow = Flow(Config(cfg), Options(work_dir=f'{folder}/run', device='cpu'))
        note(f'run {name}', flow.run)
    return {**found, 'jobs': [name for name in flow.context.jobs if 'process' not in name]}
