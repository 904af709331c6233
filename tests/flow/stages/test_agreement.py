"""Ranks that do not have the same config or work dir."""

import logging
import os
from pathlib import Path

from runnerkit.config import Config
from runnerkit.distributed import same_seed_everywhere
from runnerkit.flow import Context, Flow, Instance, Options
from runnerkit.flow.stages import agreement
from runnerkit.flow.stages.agreement import check_same_config, check_shared, differences, values_of


def test_plain_values_are_compared_by_their_keys():
    cfg = Config(
        {'optimizer': {'lr': 0.1, 'betas': (0.9, 0.99)}, 'custom_hooks': [], 'model': {'type': Config}, 'x': 1}
    )
    cfg.update(seed=3, work_dir='a', dist_params={'rank': 1})
    values = dict(values_of(Context(cfg, Options(device='cuda:1', overfit=8))))
    assert {key: value for key, value in values.items() if not key.startswith('--')} == {
        'optimizer.lr': '0.1',
        'optimizer.betas[0]': '0.9',
        'optimizer.betas[1]': '0.99',
        'custom_hooks': '[]',
        'model.type': 'a type',
    }
    assert values['--overfit'] == '8'
    assert values['--if-used'] == 'None'
    assert not {'--device', '--gpu-id', '--seed', '--work-dir'} & values.keys()


def test_data_sets_may_have_shares_of_their_own():
    wrong, odd = differences(
        [
            {'data.train.rank': '0', 'data.train.type': "'A'", 'data.samples_per_gpu': '2'},
            {'data.train.rank': '1', 'data.train.type': "'B'", 'data.samples_per_gpu': '3'},
        ]
    )
    assert odd == ['data.train.rank is 0 on rank 0, 1 on rank 1']
    assert wrong == [
        "data.train.type is 'A' on rank 0, 'B' on rank 1",
        'data.samples_per_gpu is 2 on rank 0, 3 on rank 1',
    ]


def test_texts_may_differ_unless_they_name_what_is_built():
    wrong, odd = differences(
        [
            {'data.root': "'/a'", 'optimizer.type': "'SGD'", 'optimizer.lr': '0.1', 'amp': "'bf16'"},
            {'data.root': "'/b'", 'optimizer.type': "'SGD'", 'optimizer.lr': '0.2', 'amp': 'None'},
            {'data.root': "'/b'", 'optimizer.type': "'Adam'", 'optimizer.lr': '0.1'},
        ]
    )
    assert odd == ["data.root is '/a' on rank 0, '/b' on ranks 1, 2"]
    assert wrong == [
        "optimizer.type is 'SGD' on ranks 0, 1, 'Adam' on rank 2",
        'optimizer.lr is 0.1 on ranks 0, 2, 0.2 on rank 1',
        "amp is 'bf16' on rank 0, None on rank 1, not there on rank 2",
    ]


RUN = {
    'model': {'type': 'support.Tiny'},
    'data': {'samples_per_gpu': 4, 'train': {'type': 'support.Noisy', 'length': 8}},
    'runner': {'type': 'EpochBasedRunner', 'max_epochs': 1},
}


def test_on_two_ranks(tmp_path, on_ranks):
    here, there = on_ranks(__file__, 'on_rank', str(tmp_path))
    alike, lr, flag, root, place, *shared, run, run_unshared, jobs = here
    alike_there, lr_there, flag_there, root_there, place_there, *shared_there, run_there, run_unshared_there, _ = there
    assert jobs == ['torchrun of rank 0', 'torchrun of rank 1']
    assert alike == alike_there == ('', '')
    assert lr[0] == (
        'WrongValue: the ranks have different configs: optimizer.lr is 0.1 on rank 0, 0.2 on rank 1. Start all ranks '
        'with the same config file, --cfg-options and flags'
    )
    assert 'different configs: --overfit is 4 on rank 0, None on rank 1.' in flag[0]
    assert lr_there[0] == flag_there[0] == 'ToldByFirstRank: the ranks have different configs; see the error of rank 0'
    assert root[0] == root_there[0] == ''
    assert "the ranks have different configs: data.root is '/data/0' on rank 0, '/data/1' on rank 1." in root[1]
    assert place[0] == place_there[0] == str(tmp_path / '0')
    assert f'the work dir is {tmp_path}/0 here and {tmp_path}/1 on rank 1: all ranks use the first one' in place[1]
    assert not (tmp_path / '1').exists()
    assert root_there[1] == place_there[1] == ''  # one rank tells
    assert shared == [
        f'rank 1 does not see the files of rank 0 in the work dir {tmp_path}/0: such a run cannot be resumed. '
        'Choose a folder that all machines share (--work-dir, or checkpoint_config.out_dir)',
        '',
        '',
        f'FileNotFoundError: rank 1 does not see the files of rank 0 in the work dir {tmp_path}/0: FSDP2 saves '
        'sharded checkpoints, to which all ranks write. Choose a folder that all machines share (--work-dir, or '
        'checkpoint_config.out_dir)',
    ]
    assert 'optimizer.lr is 0.1 on rank 0, 0.2 on rank 1' in run
    assert 'rank 1 does not see the files of rank 0' in run_unshared
    assert [text.partition(':')[0] for text in (run_there, run_unshared_there)] == ['ToldByFirstRank'] * 2
    assert shared_there == [
        '',
        '',
        '',
        'ToldByFirstRank: ranks do not see the work dir of rank 0; see the error of rank 0',
    ]


def on_rank(rank, folder):
    cases = [
        ({'optimizer': {'lr': 0.1}, 'seed': rank}, Options(device=f'cpu:{rank}')),
        ({'optimizer': {'lr': 0.1 + 0.1 * rank}}, Options()),
        ({'optimizer': {'lr': 0.1}}, Options(overfit=4 if rank == 0 else None)),
        ({'data': {'root': f'/data/{rank}'}}, Options()),
    ]
    results = []
    records = []
    handler = logging.Handler()
    handler.emit = lambda record: records.append(record.getMessage())
    for cfg, options in cases:
        context = Context(Config(cfg), options, rank=rank, world_size=2)
        context.logger.addHandler(handler)
        records.clear()
        found = caught(lambda: check_same_config(context))  # noqa: B023
        results.append((found, ''.join(records)))
    context = Context(Config({'work_dir': f'{folder}/{rank}'}), Options(), rank=rank, world_size=2)
    records.clear()
    Instance(None).open_work_dir(context)
    results.append((str(context.work_dir), ''.join(records)))
    agreement._PATIENCE = 0.1
    for wrapper, out_dir, seen_as in (
        ('DDP', None, rank),
        ('FSDP2', 'x', rank),
        ('FSDP2', None, 0),
        ('FSDP2', None, rank),
    ):
        context.cfg.update(model_wrapper={'type': wrapper}, checkpoint_config={'out_dir': out_dir})
        log = Path(folder, str(seen_as), f'{context.timestamp}.log')
        records.clear()
        results.append(caught(lambda: check_shared(context, log)) + ''.join(records))  # noqa: B023
    same_seed_everywhere(0)  # before rank 0 gives the work dir back
    context.closing.close()
    agreement._appears = lambda file: False
    os.environ.update(TORCHELASTIC_RESTART_COUNT='0', TORCHELASTIC_RUN_ID=f'of rank {rank}')
    for lr, wrapper in ((0.1 + 0.1 * rank, 'DDP'), (0.1, 'FSDP2')):
        cfg = {**RUN, 'optimizer': {'type': 'SGD', 'lr': lr}, 'model_wrapper': {'type': wrapper}}
        flow = Flow(Config(cfg), Options(work_dir=f'{folder}/run', device='cpu'))
        results.append(caught(flow.run))
    return [*results, [name for name in flow.context.jobs if 'process' not in name]]


def caught(call):
    try:
        call()
    except (OSError, ValueError, RuntimeError) as error:
        return f'{type(error).__name__}: {error}'
    return ''
