"""Functions by name: wherever a config takes a function, it takes the function's name, and keeps it in the work dir."""

import math
import shutil
import sys
from pathlib import Path

import pytest
import torch

import runnerkit
from runnerkit.config import Config
from runnerkit.data import Compose, build_dataloader
from runnerkit.flow.use.testing import test as evaluate
from runnerkit.hooks import ClosureHook, EvalHook
from runnerkit.registry import FUNCTIONS, Registry, build_or_bind, find_function

WORDS = '''
"""Texts of unequal lengths, and functions that a config names."""
import torch
from torch import nn
from torch.utils.data import Dataset

from .more import factor

SEEN = []


class Texts(Dataset):
    """Numbers; a text is longer the larger its index, and its class is whether it begins with an odd number."""

    def __init__(self, length=8):
        self.texts = [torch.arange(1, i + 2) for i in range(length)]

    def __len__(self):
        return len(self.texts)

    def __getitem__(self, index):
        return self.texts[index] + index, index % 2


class Bag(nn.Module):
    """The mean of the embeddings of a text's words, without its padding."""

    def __init__(self):
        super().__init__()
        self.words, self.out = nn.Embedding(32, 4), nn.Linear(4, 2)

    def forward(self, words):
        mask = (words > 0).unsqueeze(-1)
        return self.out((self.words(words) * mask).sum(1) / mask.sum(1))


def pad(samples, least=1):
    texts, labels = zip(*samples)
    longest = max(least, *map(len, texts))
    return torch.stack([nn.functional.pad(each, (0, longest - len(each))) for each in texts]), torch.tensor(labels)


class Pad:
    def __init__(self, least=1):
        self.least = least

    def __call__(self, samples):
        return pad(samples, self.least)


def half(epoch):
    return factor**epoch


def loss(output, target):
    return nn.functional.cross_entropy(output, target)


def start(worker):
    torch.utils.data.get_worker_info().dataset.texts = [torch.ones(3, dtype=torch.long)] * 8


def note(*args):
    SEEN.append(args)
    return ['a prediction'] * 5


def step(model, data, train_mode=True):
    return dict(loss=model(data[0]).sum(), num_samples=len(data[0]), log_vars={})
'''

CONFIG = """
{first}
model = dict(type='Supervised', model=dict(type='words.py:Bag'), loss={loss})
data = dict(samples_per_gpu=4, train=dict(type='words.py:Texts'), val=dict(type='words.py:Texts', length=5),
            test=dict(type='words.py:Texts', length=6), collate_fn={collate})
optimizer = dict(type='SGD', lr=0.1)
lr_config = dict(policy='LambdaLR', lr_lambda={schedule})
evaluation = dict(interval=1)
runner = dict(type='EpochBasedRunner', max_epochs=2)
seed = 0
"""

#: How functions stand in a config: its first line, and its collate_fn, lr_lambda and loss.
FORMS = {
    'in a file': ('', "'words.py:pad'", "['words.py:half']", "'words.py:loss'"),
    'with arguments': ('', "dict(type='words.py:pad', least=3)", "dict(type='words.py:half')", "'words.py:loss'"),
    'an object': ('', "dict(type='words.py:Pad', least=3)", "'words.py:half'", "dict(type='CrossEntropyLoss')"),
    'a class without arguments': ('', "'words.py:Pad'", "'words.py:half'", "'words.py:loss'"),
    'imported': ('from plain import half, loss, pad', 'pad', '[half]', 'loss'),
    'registered': ("custom_imports = dict(imports=['names.py'])", "'our_pad'", "'our_half'", "'our_loss'"),
    'dotted': ('', "'lib.words.pad'", "'lib.words.half'", "'torch.nn.functional.cross_entropy'"),
}


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A folder with the user's files, once as files and once as a package on the path; the files are new in each test,
    as files with an equal text are one module."""
    folder = tmp_path / 'project'
    (folder / 'lib').mkdir(parents=True)
    for place in (folder, folder / 'lib'):
        (place / 'words.py').write_text(f'{WORDS}\nPLACE = {str(place)!r}\n')
        (place / 'more.py').write_text('factor = 0.5\n')
    (folder / 'lib' / '__init__.py').write_text('')
    plain = WORDS.replace('from .more import factor', 'factor = 0.5')
    (folder / 'plain.py').write_text(f'{plain}\nPLACE = {str(folder)!r}\n')
    (folder / 'names.py').write_text(
        'from runnerkit.registry import FUNCTIONS\nfrom .words import half, loss, pad\n'
        'for function in (half, loss, pad):\n'
        "    FUNCTIONS.register_module(f'our_{function.__name__}', force=True, module=function)\n"
    )
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setattr(FUNCTIONS, '_module_dict', {})
    (tmp_path / 'elsewhere').mkdir()
    monkeypatch.chdir(tmp_path / 'elsewhere')
    yield folder
    for name in [name for name in sys.modules if name.partition('.')[0] in ('lib', 'plain')]:
        del sys.modules[name]


def write(project, form='in a file', more='', **changes):
    first, collate, schedule, loss = FORMS[form]
    values = {'first': first, 'collate': collate, 'schedule': schedule, 'loss': loss, **changes}
    (project / 'cfg.py').write_text(CONFIG.format(**values) + more)
    return project / 'cfg.py'


def trained(project, *args, **options):
    return runnerkit.train(write(project, *args), work_dir=project.parent / 'run', **options)


def module_of(project):
    return sys.modules[find_function(f'{project}/words.py:pad', 'collate_fn').__module__]


@pytest.mark.parametrize('form', FORMS)
def test_a_run_and_its_work_dir_elsewhere(project, form):
    result = trained(project, form)
    assert result.outcome.kind == 'completed'
    assert [row['lr'] for row in result.history if row['mode'] == 'train'] == pytest.approx([0.1, 0.05])
    expected = torch.stack(runnerkit.predict(result.work_dir, 'test'))
    copy = project.parent / 'copy'
    shutil.move(result.work_dir, copy)
    kept = Config.fromfile(copy / 'cfg.py', import_custom_modules=False)
    if form != 'dotted':
        assert 'lib.' not in kept.pretty_text.replace('torch.nn.functional', '')
        shutil.move(project, project.with_name('gone'))  # only a package that is installed is needed
    assert torch.equal(torch.stack(runnerkit.predict(copy, 'test')), expected)
    if form == 'with arguments':
        assert evaluate(copy / 'cfg.py', checkpoint=copy)['loss'] > 0
        assert runnerkit.export(copy, copy / 'bag.pt2').difference < 1e-6
    more = runnerkit.train(copy / 'cfg.py', work_dir=copy, resume=True, cfg_options={'runner.max_epochs': 3})
    assert [row['lr'] for row in more.history if row['mode'] == 'train'] == pytest.approx([0.025])


def test_a_split_may_have_a_function_of_its_own(project):
    own = "data['val_dataloader'] = dict(collate_fn=dict(type='words.py:pad', least=9))\n"
    trained(project, 'in a file', own)
    data = Config.fromfile(project / 'cfg.py').data
    loaders = [
        build_dataloader(find_function(data.val.type, 'x')(), 4, 0, shuffle=False, collate_fn=each)
        for each in (data.collate_fn, data.val_dataloader.collate_fn)
    ]
    assert [next(iter(loader))[0].shape for loader in loaders] == [(4, 4), (4, 9)]


def test_workers_and_evaluations_and_hooks_and_batches(project):
    more = (
        "custom_hooks = [dict(type='ClosureHook', fn_name='before_run', fn='words.py:note')]\n"
        "evaluation.update(test_fn=dict(type='words.py:note', own=1))\n"
        "profiler_config = dict(profile_iters=1, on_trace_ready='words.py:note')\n"
        "data['train_dataloader'] = dict(workers_per_gpu=1, worker_init_fn='words.py:start')\n"
    )
    path = write(project, more=more)
    path.write_text(path.read_text().replace("dict(type='words.py:note', own=1)", "'words.py:note'"))
    words = module_of(project)
    words.Texts.evaluate = lambda self, results, logger=None: {'asked': 1.0}
    result = runnerkit.train(path, work_dir=project.parent / 'run')
    assert result.scores['asked'] == 1
    assert [len(args) for args in words.SEEN if len(args) == 2] == [2, 2]  # test_fn(model, loader), after each epoch
    assert [type(args[0]).__name__ for args in words.SEEN if len(args) == 1] == ['EpochBasedRunner', 'profile']


def test_an_old_step_by_name(project):
    step = "runner.update(batch_processor='words.py:step')\nmodel = dict(type='words.py:Bag')\nevaluation = None\n"
    with pytest.warns(match='batch_processor is deprecated'):
        result = trained(project, 'in a file', step)
    assert result.outcome.kind == 'completed'


def test_transforms_and_arguments_that_are_annotated_as_functions(project):
    words = module_of(project)
    assert Compose([f'{project}/words.py:pad']).transforms == [words.pad]
    registry = Registry('thing')

    @registry.register_module()
    class Thing:
        def __init__(self, f: 'Callable | None' = None, many: 'list[Callable]' = (), text: 'str | Callable' = ''):  # noqa: F821
            self.f, self.many, self.text = f, many, text

    @registry.register_module()
    class Child(Thing):
        def __init__(self, **others):
            super().__init__(**others)

    for cls in ('Thing', 'Child'):
        thing = registry.build(dict(type=cls, f='math.sqrt', many=['math.sqrt', len], text='math.sqrt'))
        assert (thing.f(4), thing.many[0](9), thing.many[1], thing.text) == (2, 3, len, 'math.sqrt')
    for own in (dict(type='OfItsOwnRegistry'), dict(a=1), [dict(type='Own')], 3):  # the class reads it itself
        assert registry.build(dict(type='Thing', f=own)).f == own
    assert registry.build(dict(type='Thing', f=dict(type='math.pow'))).f(2, 3) == 8
    with pytest.raises(KeyError, match="Thing: f: math.sqtr is not in the function registry.*did you mean 'sqrt'"):
        registry.build(dict(type='Thing', f='math.sqtr'))


#: What stands in a config in place of a function, and what is told before the first batch.
WRONG = {
    'no such function': ("'words.py:pda'", r"collate_fn.*has no 'pda'; did you mean 'Pad' or 'pad'\?"),
    'no such file': ("'wrods.py:pad'", r"there is no file 'wrods.py'"),
    'not registered': ("'pad'", "collate_fn.*pad is not in the function registry.*'my_file.py:function'"),
    'nearly registered': ("'known_padd'", "did you mean 'known_pad'"),
    'no such module': ("'nowhere.pad'", "no module 'nowhere'"),
    'no such argument': (
        "dict(type='words.py:pad', leats=3)",
        "unexpected keyword argument 'leats'; did you mean 'least'",
    ),
    'no such argument of a class': ("dict(type='words.py:Pad', leats=3)", "did you mean 'least'"),
    'no type': ('dict(least=3)', 'must be a function, its name'),
    'a number': ('3', 'must be a function, its name'),
    'a list': ("['words.py:pad']", 'must be a function, its name'),
}


@pytest.mark.parametrize('collate, message', WRONG.values(), ids=WRONG)
def test_a_wrong_name_ends_the_run_before_the_first_batch(project, collate, message):
    FUNCTIONS.register_module('known_pad', module=module_of(project).pad)
    path = write(project, collate=collate)
    with pytest.raises(Exception, match=message) as raised:
        runnerkit.train(path, work_dir=project.parent / 'run')
    assert 'cfg.py:5' in str(raised.value)
    assert not list((project.parent / 'run').glob('*.pth'))


@pytest.mark.parametrize('line, key', [
    ("lr_config['lr_lambda'] = 'words.py:hlaf'", 'lr_lambda'),
    ("evaluation['test_fn'] = 'words.py:hlaf'", 'test_fn'),
    ("runner['batch_processor'] = 'words.py:hlaf'", 'batch_processor'),
    ("data['train_dataloader'] = dict(worker_init_fn='words.py:hlaf')", 'worker_init_fn'),
    ("custom_hooks = [dict(type='ClosureHook', fn_name='before_run', fn='words.py:hlaf')]", 'fn'),
    ("lr_config = dict(policy='SequentialLR', milestones=[1], schedulers=[dict(policy='ConstantLR'), "
     "dict(policy='LambdaLR', lr_lambda='words.py:hlaf')])", 'lr_lambda'),
])  # fmt: skip
def test_a_wrong_name_elsewhere(project, line, key):
    with pytest.raises(Exception, match=rf"{key}: .*has no 'hlaf'; did you mean 'half'") as raised:
        trained(project, 'in a file', line)
    assert 'cfg.py:' in str(raised.value)


def test_functions_without_a_name_are_told_with_the_line_and_the_way_out(project, caplog):
    made = 'def made():\n    def inner(): ...\n    return inner'
    first = f'from functools import partial\nfrom lib.words import Pad, pad\n{made}'
    path = write(project, first=first, collate='partial(pad, least=2)', schedule='[lambda epoch: 0.5]')
    path.write_text(path.read_text() + 'hook = dict(fn=made(),\n    bound=Pad().__call__, kept=len)\n')
    runnerkit.train(path, work_dir=project.parent / 'run')
    said = ' '.join(caplog.text.split())
    for key, line, what, way_out in (
        ('data.collate_fn', 9, 'is a partial function,', "Write dict(type='my_file.py:function', key=value)"),
        (
            'lr_config.lr_lambda[0]',
            11,
            'is a lambda,',
            'Write it with def at the top level of a file, and give its name',
        ),
        ('hook.fn', 15, 'is a function that no import finds,', 'Write it with def'),
        ('hook.bound', 16, 'is a function that no import finds,', 'Write it with def'),
    ):
        found = said.partition(f'- {key} (')[2].partition(' - ')[0]
        assert f'cfg.py:{line}): {what} so the work dir does not keep it: predict, test' in found, key
        assert way_out in found
    assert '- hook.kept' not in said


def test_from_python_too(project):
    words = module_of(project)
    name = f'{project}/words.py:note'
    loader = build_dataloader(words.Texts(), 2, 0, collate_fn=f'{project}/words.py:pad')
    assert loader.collate_fn is words.pad
    assert EvalHook(loader, test_fn=name).test_fn is words.note
    assert ClosureHook('before_run', words.note).before_run is words.note
    assert find_function(None, 'x') is None
    assert Path(runnerkit.__file__).exists()


def test_lists_copies_and_functions_without_a_signature():
    assert find_function(('math.sqrt', len), 'x') == (math.sqrt, len)
    assert find_function('math.log', 'x') is math.log  # which has no signature
    asked = {'type': 'builtins.dict', 'a': [1]}
    find_function(asked, 'x')()['a'].append(2)
    assert asked == {'type': 'builtins.dict', 'a': [1]}
    registry = Registry('thing')
    registry.register_module('power', module=lambda base, exponent: base**exponent)
    assert build_or_bind({'type': 'power', 'base': 2, 'exponent': 3}, registry) == 8
    assert build_or_bind({'type': 'power', 'exponent': 3}, registry)(2) == 8
    with pytest.raises(TypeError, match='must be a function or its name.*but got 3'):
        find_function(3, 'x')
