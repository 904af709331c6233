"""The preflight as a whole: in a flow, in a dry run, and from Python."""

import re
from pathlib import Path

import pytest
import torch
from plans import CONFIG, plan, said
from support import loader, tiny_runner

import runnerkit.flow.preflight
from runnerkit.cli.train import main
from runnerkit.config import Config
from runnerkit.flow import Flow, Options, RunnerBase, StartupBase
from runnerkit.flow.preflight import OF_CONFIG, OF_RUN, Plan, PreflightError, checks, find, is_complete, preflight

ROOT = Path(__file__).parents[3]

#: The gallery; the third config needs mmcls.
GALLERY = sorted(path for path in (ROOT / 'configs').rglob('*.py') if 'runner = dict(' in path.read_text())


def written(tmp_path, **changes):
    """A config file of a run; lines in the order of `CONFIG`, the first one is the model."""
    values = {**CONFIG, 'seed': 1, 'timer_config': None, **changes}
    (tmp_path / 'cfg.py').write_text(''.join(f'{key} = {value!r}\n' for key, value in values.items()))
    return str(tmp_path / 'cfg.py')


def line_of(tmp_path, key):
    lines = (tmp_path / 'cfg.py').read_text().splitlines()
    return f'cfg.py:{next(n for n, line in enumerate(lines, 1) if line.startswith(key))}'


@pytest.fixture
def train(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)

    def run(*flags, **changes):
        code = main([written(tmp_path, **changes), '--work-dir', 'run', '--device', 'cpu', *flags])
        printed = capsys.readouterr()
        return code, printed.out + printed.err

    return run


# --- in a flow -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize('flags', [[], ['--dry-run']])
def test_all_errors_of_a_config_refuse_it_before_anything_is_made(flags, train, tmp_path):
    optimizer = {'type': 'SGD', 'lr': '1e-3', 'momentum': 0.9}
    code, text = train(*flags, workflow=[], optimizer=optimizer, deterministic='no', checkpoint_config={'interval': 9})
    assert code == 2
    assert 'the run does not start, because of 3 errors:' in text
    assert f"- optimizer.lr ({line_of(tmp_path, 'optimizer =')}): must be a number, but got '1e-3'\n" in text
    assert f'- workflow ({line_of(tmp_path, "workflow")}): an empty workflow trains nothing\n' in text
    assert f"- deterministic ({line_of(tmp_path, 'deterministic')}): must be True or False, but got 'no'\n" in text
    assert 'Traceback' not in text
    assert not (tmp_path / 'run').exists()


@pytest.mark.parametrize('flags', [[], ['--dry-run']])
def test_all_errors_of_a_plan_refuse_it_before_the_first_batch(flags, train, tmp_path):
    code, text = train(
        *flags,
        model={'type': 'PlanTiny', 'frozen': True},
        evaluation=None,
        lr_config={'policy': 'CosineRestart', 'periods': [1], 'restart_weights': [1], 'min_lr': 0},
        checkpoint_config={'interval': 9},
    )
    assert code == 2
    assert 'because of 2 errors:' in text
    assert '- model (cfg.py:1): all 6 parameters of PlanTiny are frozen' in text
    assert f'- lr_config.periods ({line_of(tmp_path, "lr_config")}): the periods add up to 1' in text
    assert 'Epoch [1]' not in text
    assert 'First batch' not in text
    assert not list(tmp_path.rglob('*.pth'))


def test_warnings_are_shown_after_the_start_and_at_the_end(train, tmp_path):
    code, text = train(checkpoint_config={'interval': 9}, total_epochs=7)
    assert code == 0
    where = line_of(tmp_path, 'checkpoint_config')
    one = (
        f'- checkpoint_config.interval ({where}): a checkpoint is saved every 9 epochs, but the run has 3 epochs: only '
        'the last state is saved\n'
    )
    other = f'- total_epochs ({line_of(tmp_path, "total_epochs")}): is ignored'
    for word in (one, other):
        assert text.count(word) == 2
        first, second = text.index(word), text.rindex(word)
        assert first < text.index('Epoch [1]') < text.index('Run completed') < second
    assert text.count('2 warnings') == 2
    (log,) = (tmp_path / 'run').glob('*.log')
    assert log.read_text().count(one) == 2


def test_a_dry_run_shows_warnings_too(train):
    code, text = train('--dry-run', checkpoint_config={'interval': 9})
    assert code == 0
    assert text.count('only the last state is saved') == 1
    started = text.index('The run would start, with 1 warning at the end of this.')
    assert started < text.index('only the last state is saved')


def test_a_good_run_says_nothing(train):
    code, text = train()
    assert code == 0
    assert 'WARNING' not in text


def test_a_run_that_fails_on_the_way_has_not_shown_them_and_does_not_at_its_end(tmp_path, caplog):
    class Fails(StartupBase):
        def startup(self, context):
            raise ValueError('boom')

    cfg = Config({**CONFIG, 'total_epochs': 7})
    flow = Flow(cfg, Options(work_dir=str(tmp_path), device='cpu'), stages={'startup': Fails})
    with pytest.raises(ValueError, match='boom'):
        flow.run()
    assert [finding.key for finding in flow.context.findings] == ['total_epochs']


def test_a_resumed_run_with_nothing_left_to_do(train):
    assert train('--cfg-options', 'evaluation=None')[0] == 0
    code, text = train('--auto-resume', '--cfg-options', 'evaluation=None')
    assert code == 0
    assert len(re.findall('nothing is left to train: .* has completed all 3 epochs', text)) == 2


def test_a_run_that_is_not_complete_has_something_left(tmp_path):
    assert is_complete(plan(tmp_path), 'epoch_3.pth') == []


# --- from Python -----------------------------------------------------------------------------------------------------


def test_a_runner_made_in_python(tmp_path):
    runner = tiny_runner(work_dir=tmp_path, max_epochs=2)
    train = Plan(runner=runner, loaders=[loader()], workflow=[('train', 1)])
    (finding,) = preflight(train)
    assert (finding.level, finding.key, finding.where) == ('warning', '', '')
    assert 'the weights never change' in str(finding)
    runner.register_training_hooks(lr_config={'policy': 'step', 'step': [1]}, optimizer_config={})
    assert preflight(Plan(runner=runner, loaders=[loader()], workflow=[('train', 1)])) == []
    with pytest.raises(PreflightError, match='is empty'):
        preflight(Plan(runner=runner, loaders=[[]], workflow=[('train', 1)]))


def test_a_config_alone():
    (finding,) = find(Plan(cfg=Config({**CONFIG, 'workflow': []})))
    assert (finding.level, finding.key) == ('error', 'workflow')
    assert find(Plan(cfg=Config(CONFIG))) == find(Plan(cfg=CONFIG)) == []


def test_a_plan_is_only_looked_at(tmp_path):
    """Neither weights, nor hooks, nor generators change."""
    of = plan(tmp_path, {'custom_hooks': [{'type': 'EMAHook'}]})
    before = [tensor.clone() for tensor in of.model.state_dict().values()], list(of.hooks), torch.get_rng_state()
    assert find(of) == []
    after = list(of.model.state_dict().values()), list(of.hooks), torch.get_rng_state()
    assert all(map(torch.equal, before[0], after[0]))
    assert before[1] == after[1]
    assert torch.equal(before[2], after[2])


def test_each_module_has_checks_with_a_docstring():
    folder = Path(runnerkit.flow.preflight.__file__).parent
    assert {path.stem for path in folder.glob('*.py')} == {*OF_CONFIG, *OF_RUN, 'plan', '__init__'}
    assert all(check.__doc__ for module in (*OF_CONFIG, *OF_RUN) for check in checks(module))
    assert all(map(checks, (*OF_CONFIG, *OF_RUN)))


class OnlyLook(RunnerBase):
    def run(self, context):
        pass


# --- no false findings -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize('path', GALLERY, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_gallery_has_no_findings(path, monkeypatch):
    monkeypatch.chdir(ROOT)
    cfg = Config.fromfile(path)
    assert find(Plan(cfg=cfg)) == []
    if 'mmcls' in path.parts:
        return
    context = Flow(cfg, Options(dry_run=True, device='cpu'), stages={'startup': None, 'runner': OnlyLook}).run()
    assert said(Plan.of(context)) == []


def test_the_gallery_is_there():
    assert [path.stem for path in GALLERY] == [
        'experiment', 'losses', 'modes', 'shakespeare', 'resnet_mnist', 'lenet', 'onecycle', 'clicks', 'darts',
        'resnet', 'hela', 'speakers', 'wine',
    ]  # fmt: skip
