"""``python -m runnerkit.compat``, in processes of its own."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from forks import Fork

from runnerkit.compat.__main__ import main

ROOT = Path(__file__).resolve().parent.parent.parent

SCRIPT = """
import json, sys
import mmcv.runner
import beside

if __name__ == '__main__':
    json.dump([sys.argv, sys.path[0], __file__, beside.HERE, mmcv.runner.Hook.__module__, __name__,
               sys.modules['__main__'].__file__], sys.stdout)
"""


FIRST = """
import mmcv.parallel.collate
from mmcv.parallel import collate
"""


def compat(*arguments, cwd, **environment):
    return subprocess.run(
        [sys.executable, '-m', 'runnerkit.compat', *arguments],
        cwd=cwd,
        env={**os.environ, 'PYTHONPATH': str(ROOT), 'OMP_NUM_THREADS': '1', **environment},
        capture_output=True,
        text=True,
        timeout=300,
    )


def test_a_script_runs_as_python_runs_it(tmp_path):
    (tmp_path / 'tools').mkdir()
    (tmp_path / 'tools' / 'train.py').write_text(FIRST + SCRIPT)
    (tmp_path / 'tools' / 'beside.py').write_text('HERE = 1')
    with (tmp_path / 'tools' / 'train.py').open('a') as script:
        script.write("    print(mmcv.runner.TextLoggerHook()._round_float({'loss': 1 / 3}), file=sys.stderr)\n")
        script.write('    print(callable(collate), file=sys.stderr)')  # a function, not the module of its name
    done = compat('tools/train.py', 'config.py', '--seed', '0', cwd=tmp_path)
    assert "{'loss': 0.33333}\nTrue\n" in done.stderr
    assert done.returncode == 0, done.stderr
    argv, first, file, here, hook, name, main_file = json.loads(done.stdout)
    assert argv == ['tools/train.py', 'config.py', '--seed', '0']
    assert first == str(tmp_path / 'tools')
    assert (file, main_file) == ('tools/train.py', 'tools/train.py')
    assert (here, hook, name) == (1, 'runnerkit.hooks.hook', '__main__')


@pytest.mark.thorough  # test_a_script_runs_as_python_runs_it
def test_a_module_runs_as_python_runs_it(tmp_path):
    (tmp_path / 'tools').mkdir()
    (tmp_path / 'tools' / '__init__.py').touch()
    (tmp_path / 'tools' / 'train.py').write_text(SCRIPT.replace('import beside', 'from tools import beside'))
    (tmp_path / 'tools' / 'beside.py').write_text('HERE = 2')
    done = compat('-m', 'tools.train', '--seed', '0', cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    argv, first, file, here, *_ = json.loads(done.stdout)
    assert argv == [str(tmp_path / 'tools' / 'train.py'), '--seed', '0']
    assert (first, file, here) == (str(tmp_path), str(tmp_path / 'tools' / 'train.py'), 2)


@pytest.mark.usefixtures('warm')
def test_how_a_script_ends_is_how_the_process_ends(tmp_path):
    (tmp_path / 'ends.py').write_text('raise SystemExit(7)')
    (tmp_path / 'fails.py').write_text('import mmcv.cnn')
    assert compat('ends.py', cwd=tmp_path).returncode == 7
    failed = compat('fails.py', cwd=tmp_path)
    assert failed.returncode == 1
    assert 'ModuleNotFoundError: mmcv.cnn is not part of runnerkit' in failed.stderr.splitlines()[-1]


@pytest.mark.usefixtures('warm')
def test_wrong_usage(tmp_path):
    nothing = compat(cwd=tmp_path)
    assert nothing.returncode == 2
    assert nothing.stderr.startswith('usage: python -m runnerkit.compat')
    missing = compat('train.py', cwd=tmp_path)
    assert missing.returncode == 2
    assert 'there is no script train.py' in missing.stderr
    asked = compat('--help', cwd=tmp_path)
    assert (asked.returncode, asked.stdout) == (0, nothing.stderr)


SPAWNED = """
import torch.utils.data
import mmcv
from mmcv.parallel import DataContainer
from mmcv.runner import get_dist_info

class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        import mmcv.runner.hooks.lr_updater
        import runnerkit.hooks.lr_updater

        assert mmcv.runner.hooks.lr_updater is runnerkit.hooks.lr_updater
        assert mmcv.__version__ == '1.7.2'
        return DataContainer(index)

def as_they_are(batch):
    return batch

if __name__ == '__main__':
    loader = torch.utils.data.DataLoader(
        Numbers(), batch_size=2, num_workers=1, multiprocessing_context='spawn', collate_fn=as_they_are
    )
    print([[item.data for item in batch] for batch in loader])
"""


@pytest.mark.thorough  # tests/compat/mmcv
def test_workers_that_are_spawned_import_the_same(tmp_path):
    (tmp_path / 'train.py').write_text(SPAWNED)
    done = compat('train.py', cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == '[[0, 1], [2, 3]]\n'


def run_in(folder):
    os.chdir(folder)
    return main(['train.py'])


def test_under_torchs_launcher(launch, tmp_path):
    (tmp_path / 'train.py').write_text(
        'from mmcv.runner import get_dist_info, init_dist\n'
        'init_dist("pytorch", backend="gloo")\n'
        'rank, world = get_dist_info()\n'
        'open(f"rank{rank}.txt", "w").write(str(world))\n'
        'import torch.distributed\ntorch.distributed.destroy_process_group()\n'
    )
    process = Fork(launch, run_in, tmp_path, folder=tmp_path)
    assert process.code() == 0, process.said()
    # Files: the lines of two processes may run into each other on their one stdout.
    assert [(tmp_path / f'rank{rank}.txt').read_text() for rank in (0, 1)] == ['2', '2']


def test_another_version_of_mmcv_is_reported(tmp_path):
    """Also in processes that the script starts; the refusal of a version names the flag."""
    (tmp_path / 'gate.py').write_text(
        'import subprocess, sys, mmcv\n'
        'print(mmcv.__version__, mmcv.version_info, mmcv.version.__version__)\n'
        'assert mmcv.__version__ <= "1.5.0", f"MMCV=={mmcv.__version__} is used but incompatible"\n'
        'subprocess.run([sys.executable, "-c", "from runnerkit.compat import install; install(); import mmcv; '
        'print(mmcv.__version__)"], check=True)\n'
    )
    refused = compat('gate.py', cwd=tmp_path)
    assert refused.returncode == 1
    assert 'error: this code refuses MMCV 1.7.2' in refused.stderr
    assert '--as-mmcv VERSION' in refused.stderr
    for done in (
        compat('--as-mmcv', '1.4.0', 'gate.py', cwd=tmp_path),
        compat('gate.py', cwd=tmp_path, RUNNERKIT_AS_MMCV='1.4.0'),
    ):
        assert done.returncode == 0, done.stderr
        assert sorted(done.stdout.splitlines()) == ['1.4.0', '1.4.0 (1, 4, 0) 1.4.0']
    wrong = compat('--as-mmcv', '2.0.0', 'gate.py', cwd=tmp_path)
    assert (wrong.returncode, wrong.stderr.count('Traceback')) == (2, 0)
    assert "error: --as-mmcv '2.0.0' is not a version of MMCV 1.x" in wrong.stderr


RANKED = """
import argparse, json, os, sys
parser = argparse.ArgumentParser()
parser.add_argument('config')
FLAG
print(json.dumps([vars(parser.parse_args()), os.environ.get('LOCAL_RANK')]))
"""


@pytest.mark.parametrize('given', [['--local-rank=3'], ['--local_rank=3'], ['--local-rank', '3']])
@pytest.mark.parametrize(
    'flag, found',
    [
        ("parser.add_argument('--local_rank', type=int, default=0)", {'local_rank': 3}),
        ("parser.add_argument('--local-rank', type=int, default=0)", {'local_rank': 3}),
        ("parser.add_argument('--local_rank', '--local-rank', type=int, default=0)", {'local_rank': 3}),
        ('', {}),
    ],
)
def test_torchs_old_launcher_puts_the_local_rank_first(tmp_path, monkeypatch, capsys, flag, found, given):
    """The script gets it in the form that it knows, be it a file or a module."""
    (tmp_path / 'ranked.py').write_text(RANKED.replace('FLAG', flag))
    monkeypatch.setattr('runnerkit.compat.__main__.install', lambda: None)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    for target in (['ranked.py'], ['-m', 'ranked']):
        for name, value in (('argv', []), ('path', list(sys.path))):
            monkeypatch.setattr(sys, name, value)
        monkeypatch.delenv('LOCAL_RANK', raising=False)
        assert main([*given, *target, 'cfg.py']) == 0
        assert json.loads(capsys.readouterr().out) == [{'config': 'cfg.py', **found}, '3']


def test_a_local_rank_of_the_script_is_left_to_it(tmp_path, monkeypatch, capsys):
    """And so is the LOCAL_RANK that a launcher has set."""
    (tmp_path / 'ranked.py').write_text(RANKED.replace('FLAG', "parser.add_argument('--local_rank', type=int)"))
    monkeypatch.setattr('runnerkit.compat.__main__.install', lambda: None)
    monkeypatch.setattr(sys, 'path', list(sys.path))
    monkeypatch.setattr(sys, 'argv', [])
    monkeypatch.setenv('LOCAL_RANK', '1')
    assert main([str(tmp_path / 'ranked.py'), 'cfg.py', '--local_rank=2']) == 0
    assert json.loads(capsys.readouterr().out) == [{'config': 'cfg.py', 'local_rank': 2}, '1']
    assert main(['--local-rank=1']) == 2
    with pytest.raises(ImportError, match='no_such_module'):
        main(['--local-rank=1', '-m', 'no_such_module'])
