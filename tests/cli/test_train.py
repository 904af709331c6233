"""The training tool: flags, precedence, exit codes, and one clear error for each wrong input."""

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from forks import Fork

from runnerkit.cli import train
from runnerkit.cli.train import main

ROOT = Path(__file__).parents[2]


def state(path):
    return torch.load(path)['state_dict']


def same(left, right):
    return all(torch.equal(left[name], right[name]) for name in left)


def test_a_training_leaves_everything_in_its_work_dir(project, train):
    code, out, _ = train()
    assert code == 0
    names = {path.name for path in (project / 'run').iterdir()}
    assert {'cfg.py', 'epoch_1.pth', 'epoch_2.pth', 'epoch_3.pth', 'latest.pth', 'curve.png'} <= names
    assert len([name for name in names if name.startswith('best_error_epoch_')]) == 1
    log = next((project / 'run').glob('*.log.json')).read_text().splitlines()
    lines = [json.loads(line) for line in log]
    assert lines[0]['seed'] == 3
    assert [(line['mode'], line['epoch'], line['iter']) for line in lines[1:4]] == [
        ('train', 1, 2),
        ('train', 1, 4),
        ('val', 1, 2),
    ]
    assert 'Hooks, in the order in which they are called' in next((project / 'run').glob('*.log')).read_text()
    meta = torch.load(project / 'run' / 'epoch_3.pth')['meta']
    assert (meta['epoch'], meta['iter'], meta['seed'], meta['exp_name']) == (3, 15, 3, 'cfg.py')
    assert 'MSELoss' in meta['config']


def test_the_dumped_config_runs_where_it_lies(project, train, capsys):
    from runnerkit.cli.test import main

    train()
    assert main([str(project / 'run' / 'cfg.py'), str(project / 'run' / 'latest.pth')]) == 0
    assert 'test error: ' in capsys.readouterr().out


def test_the_seed_decides_and_is_drawn_where_nobody_gives_one(project, train):
    weights = []
    for seed in (3, 3, 4):
        train('--seed', seed, work_dir=f'run{len(weights)}')
        weights.append(state(project / f'run{len(weights)}' / 'latest.pth'))
    assert same(weights[0], weights[1])
    assert not same(weights[0], weights[2])
    (project / 'cfg.py').write_text((project / 'cfg.py').read_text().replace('seed = 3', ''))
    drawn = set()
    for i in range(2):
        train('--cfg-options', 'runner.max_epochs=1', work_dir=f'drawn{i}')
        drawn.add(torch.load(project / f'drawn{i}' / 'latest.pth')['meta']['seed'])
    assert len(drawn) == 2


def test_resuming_from_the_command_line_is_exact(project, train):
    train(work_dir='whole')
    train('--cfg-options', 'runner.max_epochs=2', work_dir='part')
    for flags, work_dir in (
        (['--auto-resume'], 'part'),
        (['--resume-from', project / 'part' / 'epoch_1.pth'], 'other'),
    ):
        code, out, _ = train(*flags, work_dir=work_dir)
        assert code == 0
        assert 'resumed from' in out
        assert same(state(project / work_dir / 'epoch_3.pth'), state(project / 'whole' / 'epoch_3.pth'))


def test_resume_from_goes_before_auto_resume_before_load_from(project, train):
    train(work_dir='run')
    chosen = {
        'resumed from .*epoch_1': [
            '--resume-from',
            project / 'run' / 'epoch_1.pth',
            '--auto-resume',
            '--load-from',
            'nowhere.pth',
        ],
        'resumed from .*epoch_3': ['--auto-resume', '--load-from', 'nowhere.pth'],
    }
    for pattern, flags in chosen.items():
        assert re.search(pattern, train(*flags)[1]), pattern
    code, out, _ = train(
        '--load-from', project / 'run' / 'epoch_3.pth', '--cfg-options', 'optimizer.lr=0.0', work_dir='loaded'
    )
    assert code == 0
    assert 'resumed' not in out
    assert same(state(project / 'loaded' / 'epoch_3.pth'), state(project / 'run' / 'epoch_3.pth'))
    assert 'nothing to resume in' in train('--auto-resume', work_dir='fresh')[1]


def test_overfitting_the_first_samples(project, train, capsys):
    code, out, _ = train('--overfit', '6')
    assert code == 0
    assert 'use the first 6 samples of data.train' in out
    log = next((project / 'run').glob('*.log.json')).read_text().splitlines()
    lines = [json.loads(line) for line in log][1:]
    assert lines[-1]['step'] == 6, 'three epochs of two batches'
    assert [line['iter'] for line in lines if line['mode'] == 'val'] == [2] * 3
    for wrong, words in (('--overfit', 'at least 1'), ('--overfit-batches', "did you mean '--overfit'?")):
        with pytest.raises(SystemExit, match='2'):
            train(wrong, '0')
        assert words in capsys.readouterr().err


def test_no_validate_and_auto_scale_lr(project, train):
    train('--no-validate', '--cfg-options', 'auto_scale_lr.base_batch_size=8', '--auto-scale-lr')
    assert not list((project / 'run').glob('best_*'))
    lr = torch.load(project / 'run' / 'epoch_1.pth')['optimizer']['param_groups'][0]['initial_lr']
    assert lr == pytest.approx(0.05)
    code, _, err = train('--auto-scale-lr', work_dir='other')
    assert code == 2
    assert '--auto-scale-lr needs auto_scale_lr=dict(base_batch_size=…)' in err


def test_iteration_runner_validation_workflow_and_amp(project, train):
    code, out, _ = train(
        '--deterministic',
        '--device',
        'cpu',
        '--cfg-options',
        'runner.type=IterBasedRunner',
        'runner.max_epochs=2',
        'workflow=[(train,3),(val,1)]',
        'amp=bf16',
        'checkpoint_config.interval=5',
        'evaluation.interval=5',
        'cudnn_benchmark=True',
    )
    assert code == 0
    assert {'iter_5.pth', 'iter_10.pth'} <= {path.name for path in (project / 'run').iterdir()}


def test_old_ways_to_say_it(project, train):
    text = (
        (project / 'cfg.py')
        .read_text()
        .replace("runner = dict(type='EpochBasedRunner', max_epochs=3)", 'total_epochs = 1')
    )
    (project / 'cfg.py').write_text(text + 'fp16 = dict(loss_scale=64.)\noptimzer_config = dict()\n')
    code, out, _ = train()
    assert code == 0
    assert 'optimzer_config' in out
    updates = torch.load(project / 'run' / 'latest.pth')['runnerkit']['ranks'][0]['updates']
    assert updates['']['scaler']['scale'] == 64.0


def test_modes_of_the_model(project, train):
    model = "model = dict(_delete_=True, type='{{ fileDirname }}/points.py:Gan', in_features=4, out_features=1)"
    (project / 'gan.py').write_text(f"_base_ = 'cfg.py'\n{model}\n")
    code, out, _ = train('--no-validate', '--cfg-options', 'workflow=[(dis,1),(gen,1)]', config='gan.py')
    assert code == 0
    assert 'Epoch(dis) [1][2/5]' in out
    assert 'Epoch(gen) [2][2/5]' in out


def test_without_a_work_dir_it_is_called_after_the_config(project, monkeypatch, capsys):
    monkeypatch.chdir(project)
    assert main(['cfg.py', '--cfg-options', 'runner.max_epochs=1']) == 0
    assert (project / 'work_dirs' / 'cfg' / 'epoch_1.pth').exists()


# --- wrong input: one clear error, a truthful exit code, nothing half-written ----------------------------------------

#: One row a stage of the start; `tests/wrong_inputs.py` has wrong values of every key.
BAD = {
    'misspelt type': (['--cfg-options', 'optimizer.type=SDG'], 2, ['SDG is not in the optimizer registry', "'SGD'"]),
    'option without a value': (['--cfg-options', 'optimizer.lr'], 2, ['optimizer.lr']),
    'option into a string': (['--cfg-options', 'optimizer.type.x=1'], 2, ['--cfg-options does not fit']),
    'missing checkpoint to resume': (['--resume-from', 'nowhere.pth'], 2, ['no checkpoint nowhere.pth']),
    'missing checkpoint to load': (['--load-from', 'nowhere.pth'], 2, ['no checkpoint nowhere.pth']),
    'empty data set': (['--cfg-options', 'data.train.length=0'], 2, ['empty']),
    'unknown launcher': (['--launcher', 'pigeon'], 2, ['--launcher', 'pigeon']),
    'unknown flag': (['--wrk-dir', 'x'], 2, ['--wrk-dir']),
    'mode nobody knows': (['--cfg-options', 'workflow=[(fly,1)]'], 2, ['runner has no method named "fly"']),
    'number that is a word': (
        ['--cfg-options', 'runner.max_epochs=ten'],
        2,
        ['runner.max_epochs', '--cfg-options', 'must be a whole number', "'ten'"],
    ),
    'seed below zero': (['--seed', '-1'], 2, ['--seed']),
    'device nobody has': (['--device', 'gpu'], 2, ["unknown device 'gpu'"]),
    'unknown module to compile': (
        ['--cfg-options', 'compile.modules=[modul]'],
        2,
        ["Supervised has no submodule 'modul'", "'model'"],
    ),
    'section that is None': (
        ['--cfg-options', 'model=None'],
        2,
        ["cfg.py has no 'model' (--cfg-options); a run needs model, data, optimizer, runner"],
    ),
}


#: The same with a config ``bad.py`` (whose first line is ``_base_ = 'cfg.py'``), and another file, if there is one.
HOOK = 'from runnerkit.hooks import Hook\n\n\nclass Mine(Hook):\n    def after_train_itr(self, runner):\n        pass\n'
NO_LOSS = "dict(_delete_=True, type='{{ fileDirname }}/points.py:NoLoss', in_features=4, out_features=1)"
BAD_FILES = {
    'bases in a circle': ('', {'cfg.py': "_base_ = 'bad.py'\n"}, ['bad.py', 'cfg.py']),
    'misspelt point': (
        "custom_hooks = [dict(type='{{ fileDirname }}/hook.py:Mine')]",
        {'hook.py': HOOK},
        ['Mine.after_train_itr would never be called', "Did you mean 'after_train_iter'"],
    ),
    'step without loss': (
        f'model = {NO_LOSS}',
        {},
        ["NoLoss's step returned no 'loss' (it returned ['log_vars', 'num_samples'])"],
    ),
    'unknown key in a hook': (
        "custom_hooks = [dict(type='EMAHook', momentumm=0.1)]",
        {},
        ['EMAHook', 'momentumm', "'momentum'", 'bad.py'],
    ),
    'work dir below a file': ('', {'run': 'in the way'}, ['cannot be created', '--work-dir']),
    'work dir in which nothing can be written': (  # what a test that is root can do against it
        '',
        {'run/.lock/x': ''},
        ['cannot be used (Is a directory)', '--work-dir'],
    ),
}


#: Those that are no error of the config, but of the code that it names or of a disk.
AT_WORK = ('step without loss', 'work dir in which nothing can be written')


@pytest.mark.parametrize('name', [*BAD, *BAD_FILES])
def test_what_is_wrong_is_one_clear_error_and_nothing_is_half_written(name, train, project, capsys):
    flags, code, parts = BAD.get(name, (['--no-validate'], 2, ()))
    if name in BAD_FILES:
        line, files, parts = BAD_FILES[name]
        code = 1 if name in AT_WORK else 2
        for file, text in {'bad.py': f"_base_ = 'cfg.py'\n{line}\n", **files}.items():
            (project / file).parent.mkdir(parents=True, exist_ok=True)
            (project / file).write_text(text)
    try:
        got, said, err = train(*flags, config='bad.py' if name in BAD_FILES else 'cfg.py')
    except SystemExit as exit:  # argparse
        got, said = exit.code, capsys.readouterr().err
        err = said.strip().splitlines()[-1]
    assert got == code
    for part in parts:
        assert part in err
    assert 'Traceback' not in said
    assert not list(project.rglob('*.pth')) + list(project.rglob('*.tmp'))


UNREAD = {
    'checkpoint_config.intervall': ('checkpoint_config.intervall (--cfg-options): unknown key', "'interval'"),
    'evaluation.intervall': ('evaluation.intervall (--cfg-options): unknown key', "'interval'"),
    'log_config.intervall': ('log_config.intervall (--cfg-options): unknown key', "'interval'"),
    'optimzer_config.grad_clip': ('optimzer_config (--cfg-options): unknown section', "'optimizer_config'"),
}


def test_options_that_nobody_reads_are_refused_together(train, project):
    code, said, _ = train('--cfg-options', *(f'{key}=2' for key in UNREAD))
    assert code == 2
    assert 'because of 4 errors' in said
    for words in UNREAD.values():
        assert all(word in said for word in words)
    assert not (project / 'run').exists()


def test_a_key_that_nobody_reads_is_told_and_the_run_goes_on(project, train):
    (project / 'mine.py').write_text("_base_ = 'cfg.py'\nseeed = 2\ngpu_ids = [0]\n")
    code, said, _ = train('--cfg-options', 'runner.max_epochs=1', config='mine.py')
    assert code == 0
    assert 'mine.py:2): unknown key' in said
    assert "Did you mean 'seed'?" in said
    assert "Ignored keys of MMCV's tools: gpu_ids" in said


def test_a_misspelt_section_beside_the_one_of_the_base_is_refused(project, train):
    (project / 'mine.py').write_text("_base_ = 'cfg.py'\noptimzer = dict(lr=0.2)\n")
    code, said, _ = train(config='mine.py')
    assert code == 2
    assert "mine.py:2): unknown section\n    Did you mean 'optimizer'?" in said
    assert not (project / 'run').exists()


def test_custom_imports_may_be_options(project, train, monkeypatch):
    (project / 'registers_nothing.py').write_text('raise ZeroDivisionError("imported")\n')
    monkeypatch.syspath_prepend(project)
    code, said, _ = train('--cfg-options', 'custom_imports.imports=[registers_nothing]')
    assert code == 1
    assert 'imported' in said


def test_a_missing_config(project, capsys):
    assert main([str(project / 'nowhere.py')]) == 2
    assert 'no such config file' in capsys.readouterr().err
    assert main([str(project / 'cfgg.py')]) == 2
    assert "; did you mean 'cfg.py'?" in capsys.readouterr().err
    (project / 'notes.txt').write_text('')
    assert main([str(project)]) == 2
    assert capsys.readouterr().err == f'error: {project} is a folder, not a config file; it holds cfg.py, points.py\n'


def test_a_checkpoint_of_another_model(project, train):
    train('--cfg-options', 'runner.max_epochs=1')
    (project / 'other.py').write_text(
        "_base_ = 'cfg.py'\nmodel = dict(model=dict(_delete_=True, type='Linear', in_features=4, out_features=1))\n"
    )
    for flag in ('--resume-from', '--load-from'):
        code, _, err = train(flag, project / 'run' / 'epoch_1.pth', config='other.py', work_dir='other')
        assert code == 1
        assert 'is a checkpoint of another model' in err


def test_a_refused_run_leaves_the_config_of_the_one_before_alone(project, train):
    train('--seed', 9, '--cfg-options', 'runner.max_epochs=1')
    dumped = (project / 'run' / 'cfg.py').read_text()
    assert 'seed = 9' in dumped  # the effective one
    assert train('--cfg-options', 'model.type=Supervisd')[0] == 2
    assert (project / 'run' / 'cfg.py').read_text() == dumped


def test_a_bug_of_the_user_keeps_its_traceback(project, train):
    (project / 'bug.py').write_text(
        "_base_ = 'cfg.py'\nmodel = dict(loss=dict(_delete_=True, type='{{ fileDirname }}/points.py:fails'))\n"
    )
    code, said, _ = train('--cfg-options', 'runner.max_epochs=1', config='bug.py')
    assert code == 1
    assert 'Traceback' in said
    assert 'points.py", line' in said
    assert 'a bug of the user' in said


# --- real processes --------------------------------------------------------------------------------------------------


DEMO = str(ROOT / 'configs/mnist/lenet.py')


@pytest.mark.thorough  # tests/cli/test_signals.py::test_the_exit_code_is_128_and_the_signal
def test_interrupted_and_resumed_the_demo_is_bit_identical(tmp_path):
    """Ctrl-C after an epoch, --auto-resume: the weights are those of the run that was left alone."""

    def arguments(work_dir, *flags):
        options = ['runner.max_epochs=3', 'log_config.hooks=[]', 'data.train.part=test', 'data.batch_size=16']
        return [DEMO, '--work-dir', str(tmp_path / work_dir), *flags, '--cfg-options', *options]

    assert main(arguments('whole')) == 0
    process = Fork(main, arguments('part'), folder=tmp_path)
    deadline = time.time() + 300
    while not (tmp_path / 'part' / 'epoch_1.pth').exists() and time.time() < deadline:
        time.sleep(0.01)
    process.send(signal.SIGINT)
    assert process.code() == 130
    assert process.said().strip().splitlines()[-1] == 'interrupted'
    assert not (tmp_path / 'part' / 'epoch_3.pth').exists()
    process = Fork(main, arguments('part', '--auto-resume'), folder=tmp_path)
    assert process.code() == 0, process.said()
    whole, part = torch.load(tmp_path / 'whole' / 'epoch_3.pth'), torch.load(tmp_path / 'part' / 'epoch_3.pth')
    assert same(whole['state_dict'], part['state_dict'])
    assert whole['meta']['hook_msgs']['best_score'] == part['meta']['hook_msgs']['best_score']


@pytest.mark.thorough  # tests/flow/stages/test_wrapping.py, tests/cli/test_work_dirs.py
def test_two_processes_train_with_one_log_and_one_checkpoint(launch, tmp_path):
    arguments = [DEMO, '--launcher', 'pytorch', '--work-dir', str(tmp_path / 'run')]
    arguments += ['--cfg-options', 'runner.max_epochs=1', 'data.batch_size=256']
    process = Fork(launch, main, arguments, folder=tmp_path)
    assert process.code() == 0, process.said()[-2000:]
    names = [path.name for path in (tmp_path / 'run').iterdir()]
    assert len([name for name in names if name.endswith('.log')]) == 1
    assert len([name for name in names if name.endswith('.log.json')]) == 1
    assert sorted(name for name in names if name.endswith('.pth')) == [
        'best_accuracy_epoch_1.pth',
        'epoch_1.pth',
        'latest.pth',
    ]
    checkpoint = torch.load(tmp_path / 'run' / 'epoch_1.pth')
    assert len(checkpoint['runnerkit']['ranks']) == 2
    assert not any(name.startswith('module.') for name in checkpoint['state_dict'])
    assert checkpoint['meta']['iter'] == 7  # 3,500 digits in batches of 256 on each of two ranks


def test_classes_named_by_file_reach_spawned_workers(train):
    options = ['data.workers=1', 'data.train_dataloader.multiprocessing_context=spawn', 'runner.max_epochs=1']
    code, said, _ = train('--no-validate', '--cfg-options', *options)
    assert code == 0, said


# --- what goes where -------------------------------------------------------------------------------------------------


def before_training(err):
    """The lines that stand before the first one of the training."""
    lines = err.splitlines()
    return lines[: next(i for i, line in enumerate(lines) if 'Epoch [1]' in line)]


def test_the_start_is_short_and_its_details_are_in_the_log_file(project, capsys, monkeypatch):
    monkeypatch.chdir(project)
    assert main(['cfg.py', '--work-dir', 'run']) == 0
    err = capsys.readouterr().err
    log = next((project / 'run').glob('*.log')).read_text()
    assert len(before_training(err)) <= 6
    assert 'Config cfg.py, seed 3, device cpu with ' in err
    assert f', log run/{next((project / "run").glob("*.log")).name}\n' in err
    assert 'Training Sequential (49 parameters, SGD) for 3 epochs on Points (20 samples)\n' in err
    for detail in ('PyTorch compiling details', 'in_features=4', 'after_train_iter:', 'Exp name: cfg.py'):
        assert detail not in err
        assert detail in log


def test_verbose_shows_the_details(project, train):
    _, said, _ = train('--verbose', '--cfg-options', 'runner.max_epochs=1')
    assert '.log' not in said.splitlines()[0]
    for detail in ('PyTorch compiling details', 'in_features=4', 'after_train_iter:', 'Exp name: cfg.py'):
        assert detail in said


def test_results_are_on_stdout_and_the_log_is_not(project, capsys, monkeypatch):
    monkeypatch.chdir(project)
    assert main(['cfg.py', '--work-dir', 'run', '--cfg-options', 'runner.max_epochs=1']) == 0
    out, err = capsys.readouterr()
    scores, best, last, curve = out.splitlines()
    assert re.fullmatch(r'Scores after 5 iterations: loss [\d.]+, error [\d.]+', scores)
    assert re.fullmatch(r'Best score [\d.]+, checkpoint run/best_error_epoch_1.pth', best)
    assert (last, curve) == ('Last checkpoint run/epoch_1.pth', 'Learning curve run/curve.png')
    assert 'Best score' not in err
    assert 'Best score' in next((project / 'run').glob('*.log')).read_text()


def test_a_dry_run_shows_everything_on_stdout_and_leaves_nothing(project, capsys):
    before = sorted(project.rglob('*'))
    assert main([str(project / 'cfg.py'), '--dry-run']) == 0
    out, err = capsys.readouterr()
    model, data, losses, verdict, *_ = out.splitlines()
    assert model == 'Would train Sequential (49 parameters, SGD) for 3 epochs'
    assert data == 'Data: train on Points (20 samples, 5 batches), val on Points (8 samples, 2 batches)'
    assert re.fullmatch(r'First losses: train \d\.\d{4}, val \d\.\d{4}', losses)
    assert verdict == 'The run would start.'
    assert len(err.splitlines()) == 1  # the config: all of this is in the first five lines
    for part in (
        'Config:',
        'MSELoss',
        'Hooks:',
        'Learning rate: Step',
        "First batch of mode 'train'",
        '(4, 4) float32',
    ):
        assert part in out
        assert part not in err
    left = [path for path in sorted(project.rglob('*')) if path not in before and '__pycache__' not in str(path)]
    assert left == []


def test_loggers_by_name_on_the_command_line(project, train):
    """The list replaces the default one."""
    told = [
        train('--cfg-options', f'log_config.hooks=[{names}]', 'runner.max_epochs=1', work_dir=names)
        for names in (
            'TextLoggerHook,TensorboardLoggerHook',
            'TensorboardLoggerHook',
            'dict(type=TensorboardLoggerHook)',
        )
    ]
    assert [code for code, _, _ in told] == [0, 0, 0]
    assert len([*project.glob('*TensorboardLoggerHook*/tf_logs')]) == 3


@pytest.mark.parametrize(
    ('words', 'gpu', 'line'),
    [
        (['--gpus', '1'], 0, '--gpus: this process uses one GPU, if there is one: --gpu-id 0'),
        (['--gpu-ids', '3'], 3, '--gpu-ids: this process uses one GPU, if there is one: --gpu-id 3'),
        (['--gpus', '8', '--launcher', 'pytorch'], 0, '--gpus has no effect with --launcher pytorch'),
        ([], 0, ''),
    ],
)
def test_the_gpus_of_mmcvs_tools(words, gpu, line, capsys):
    args = train.main.parser().parse_args(['cfg.py', *words])
    train.use_gpus(args)
    assert args.gpu_id == gpu
    assert line in capsys.readouterr().out


TWO_RUNS = """
mode: [a, b]
hyper_parameters: {optimizer: {class: sgd, learning_rate: 0.1}}
dataset: [{name: d, data_path: x, data_converter: "{workspace}/own.py", batch_size: 2}]
phase: [{name: p, model: "{workspace}/own.py", dataset_name: d}]
runner:
- {name: a, epochs: 1, device: cpu, terminal_class_path: "{workspace}/own.py", save_checkpoint_path: a}
- {name: b, epochs: 1, device: cpu, terminal_class_path: "{workspace}/own.py", save_checkpoint_path: b}
"""

LOOK = """
import gc, weakref
import torch
from runnerkit.flow import TerminalBase
models = []

class Reader(torch.utils.data.Dataset):
    def __init__(self, data_path):
        pass
    def __len__(self):
        return 2
    def __getitem__(self, index):
        return torch.ones(4)

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.circle = torch.nn.Linear(4, 1), [self]
    def train_step(self, data, optimizer):
        loss = self.layer(data).mean()
        return dict(loss=loss, log_vars=dict(loss=loss), num_samples=len(data))

class Terminal(TerminalBase):
    def terminal(self, context):
        models.append(weakref.ref(context.model))
        gc.collect()
        is_visited = any(each is context.model for each in gc.get_objects())
        print('LOOK', gc.isenabled(), gc.get_freeze_count() > 50_000, is_visited, [model() is None for model in models])
"""


@pytest.mark.parametrize('is_command', [True, False])
def test_a_command_leaves_torch_out_of_each_garbage_collection(tmp_path, is_command):
    """A process that has torch already belongs to somebody else. What is the user's is collected, such as the first run
    during a second one, and everything at the exit."""
    (tmp_path / 'own.py').write_text(LOOK)
    (tmp_path / 'two.yaml').write_text(TWO_RUNS)
    start = 'import gc, sys; from runnerkit.cli.main import main; main(sys.argv[1:]); print(gc.get_freeze_count())'
    words = [sys.executable, '-c', start if is_command else f'import torch; {start}', 'train', 'two.yaml']
    said = subprocess.run(words, cwd=tmp_path, check=True, text=True, capture_output=True).stdout
    looks = [line.split(maxsplit=4)[1:] for line in said.splitlines() if line.startswith('LOOK')]
    wanted = ['True', str(is_command), 'True']
    assert looks == [[*wanted, '[False]'], [*wanted, '[True, False]']]
    assert said.splitlines()[-1] == '0'
    (tmp_path / 'own.py').write_text('broken = ')
    done = subprocess.run(words, cwd=tmp_path, text=True, capture_output=True)
    assert ('own.py' in done.stderr, done.stdout.splitlines()[-1]) == (True, '0')
