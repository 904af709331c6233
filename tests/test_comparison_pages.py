"""What the tables of *From Lightning* and *From plain PyTorch* name exists, on both sides."""

import json
import re
import subprocess
from functools import cache

import pytest
from test_docs import ROOT, rows
from test_in_lightning import MISSING, python_with_lightning

from runnerkit.cli import main
from runnerkit.cli.train import main as train
from runnerkit.hooks import HOOKS, Hook

PAGES = ['docs/from_lightning.md', 'docs/from_pytorch.md']
TICKED = re.compile(r'`([^`]+)`')
SETTING = re.compile(r'[a-z_]+(?:\.[a-z_]+)*=\S+')
SECTION = re.compile(r'[a-z_]+ = .*')

BASE = """
_base_ = ['{root}/configs/tabular/wine.py']
"""


def cells(page):
    """The tables' rows as pairs: what is there, what is here; heads left out."""
    for row in rows(page):
        if row[0] not in ('Lightning', 'plain PyTorch', 'task'):
            yield row[0], ' '.join(row[1:])


@cache
def named(page):
    """What the right-hand cells have in backticks, each with its row."""
    return [(row, text) for row, cell in cells(page) for text in TICKED.findall(cell)]


def settings():
    """The settings that a row names, together."""
    for page in PAGES:
        for row, cell in cells(page):
            found = [text for text in TICKED.findall(cell) if SETTING.fullmatch(text)]
            if found:
                yield pytest.param(found, id=' '.join(found))


@pytest.fixture
def config(tmp_path):
    path = tmp_path / 'config.py'
    path.write_text(BASE.format(root=ROOT))
    return path


@pytest.mark.parametrize('given', [*settings()])
def test_settings_are_those_of_a_run(given, config, capsys):
    assert main.main(['train', str(config), '--device', 'cpu', '--dry-run', '--cfg-options', *given]) == 0
    assert 'WARNING' not in capsys.readouterr().err


def sections():
    return sorted({text for page in PAGES for _, text in named(page) if SECTION.fullmatch(text)})


@pytest.mark.parametrize('line', sections())
def test_sections_are_those_of_a_run(line, config, tmp_path):
    if 'WandbLoggerHook' in line:
        pytest.importorskip('wandb')
    more = ''
    if 'D=dict' in line:  # for a model with parts of these names, whose step updates them
        (tmp_path / 'parts.py').write_text(PARTS)
        more = "model = dict(_delete_=True, type='parts.py:Parts')\n"
        more += 'lr_config = dict(_delete_=True, policy="fixed")\nevaluation = custom_hooks = None\n'
        line = line.replace('dict(', 'dict(_delete_=True, ', 1)
    line = line.replace('backbone', 'model.0' if 'patterns' not in line else '0')
    config.write_text(config.read_text() + more + line)
    assert main.main(['train', str(config), '--device', 'cpu', '--dry-run']) == 0


PARTS = """
import torch
class Parts(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.G, self.D = torch.nn.Linear(13, 3), torch.nn.Linear(13, 3)
    def train_step(self, data, optimizer):
        x, y = data
        for name, part in (('G', self.G), ('D', self.D)):
            loss = torch.nn.functional.cross_entropy(part(x), y)
            optimizer[name].zero_grad()
            loss.backward()
            optimizer[name].step()
        return dict(log_vars=dict(loss=loss), num_samples=len(x))
"""


def test_flags_and_commands_are_ours():
    flags = {flag for action in train.parser().arguments for flag in action.option_strings}
    flags |= {'--nproc_per_node'}  # of torchrun
    for page in PAGES:
        for row, text in named(page):
            if not text.startswith('runnerkit test'):
                assert set(re.findall(r'--[\w-]+', text)) <= flags, row
            command = re.match(r'runnerkit ([a-z-]+)', text)
            assert command is None or command[1] in main.COMMANDS, row


def test_hooks_and_points_are_ours():
    points = {name for name in dir(Hook) if not name.startswith('_')}
    seen = 0
    for row, text in named(PAGES[0]):
        for hook in re.findall(r'\b[A-Z]\w+Hook\b', text):
            assert hook in HOOKS, row
            seen += 1
        if re.fullmatch('(before|after)_[a-z_]+', text):
            assert text in points, row
            seen += 1
    assert seen > 15


def test_hooks_are_built_with_these_arguments():
    from runnerkit.registry import build_from_cfg

    built = [text for _, text in named(PAGES[0]) if text.startswith("dict(type='") and 'Hook' in text]
    assert len(built) == 3
    for text in built:
        build_from_cfg(eval(text), HOOKS)


# --- the left-hand cells ---------------------------------------------------------------------------------------------

LISTED = """
import inspect, json, lightning, lightning.pytorch.callbacks as callbacks
print(json.dumps({
    'arguments': list(inspect.signature(lightning.Trainer).parameters),
    'methods': dir(lightning.Callback) + dir(lightning.LightningModule) + dir(lightning.Trainer),
    'callbacks': {n: list(inspect.signature(c).parameters) for n, c in vars(callbacks).items() if inspect.isclass(c)},
}))
"""


@pytest.mark.skipif(python_with_lightning() is None, reason=MISSING)
def test_what_is_said_of_lightning_is_there():
    done = subprocess.run([python_with_lightning(), '-c', LISTED], capture_output=True, text=True)
    known = json.loads(done.stdout.splitlines()[-1])
    counts = dict.fromkeys(known, 0)
    for left, _ in cells(PAGES[0]):
        for text in TICKED.findall(left):
            called = re.match(r'([A-Z]\w+)\(', text)
            if called and called[1] in known['callbacks']:
                assert set(re.findall(r'(\w+)=', text)) <= set(known['callbacks'][called[1]]), text
                counts['callbacks'] += 1
            elif re.fullmatch(r'\w+=.*', text):
                assert set(re.findall(r'(\w+)=', text)) <= set(known['arguments']), text
                counts['arguments'] += 1
            elif re.match(r'on_|configure_|trainer\.|\w+_step\b', text):
                assert re.match(r'(?:trainer\.)?(\w+)', text)[1] in known['methods'], text
                counts['methods'] += 1
    assert counts['arguments'] > 15
    assert counts['callbacks'] > 8
    assert counts['methods'] > 12
