"""What the seed document of the runner states as a whole, and a few details that no single module owns.

docs/dev/seeds.md says where everything else of it is tested.
"""

import copy
import json
from contextlib import suppress

import pytest
import torch
from seed_documents import Changes
from support import Noisy, Recorder, Tiny, loader, tiny_runner, weights

from runnerkit.config import Config
from runnerkit.data import build_dataloader
from runnerkit.data.reader import IterLoader
from runnerkit.hooks import HOOKS, Hook, OptimizerHook
from runnerkit.nn import MODELS
from runnerkit.optim import build_optimizer
from runnerkit.registry import build_from_cfg
from runnerkit.runner import EpochBasedRunner, IterBasedRunner, build_runner
from runnerkit.utils.logging import get_logger

#: The example of the seed document, at the size of a test.
SEED_CONFIG = {
    'optimizer': {'type': 'SGD', 'lr': 0.1, 'momentum': 0.9, 'weight_decay': 0.0001},
    'data': {'samples_per_gpu': 4, 'workers_per_gpu': 0},
    'runner': {'type': 'EpochBasedRunner', 'max_epochs': 4},
    'workflow': [('train', 1), ('val', 1)],
    'training_hooks': {
        'lr_config': {'policy': 'step', 'step': [1, 3]},
        'optimizer_config': {'grad_clip': {'max_norm': 35, 'norm_type': 2}},
        'checkpoint_config': {'interval': 1},
        'log_config': {'interval': 2, 'hooks': [{'type': 'TextLoggerHook'}]},
    },
    'custom_hooks': [{'type': 'EMAHook', 'momentum': 0.01, 'priority': 'NORMAL'}],
}


def the_four_steps(work_dir, resume_from=None, load_from=None, seed=0):
    cfg = copy.deepcopy(SEED_CONFIG)
    torch.manual_seed(seed)
    model = Tiny()
    optimizer = build_optimizer(model, cfg['optimizer'])
    loaders = [build_dataloader(Noisy(n), **cfg['data'], seed=5) for n in (20, 8)]
    runner = build_runner(
        cfg['runner'],
        {
            'model': model,
            'batch_processor': None,
            'optimizer': optimizer,
            'work_dir': str(work_dir),
            'meta': {'seed': 5},
        },
    )
    runner.register_training_hooks(**cfg['training_hooks'])
    for hook in cfg['custom_hooks']:
        runner.register_hook_from_cfg(hook)
    if resume_from is not None:
        runner.resume(str(resume_from))
    elif load_from is not None:
        runner.load_checkpoint(str(load_from))
    runner.run(loaders, cfg['workflow'])
    assert cfg == SEED_CONFIG
    return runner


#: The listings of the document. It has no imports: the names are given to it.
EPOCHS = """
# 训练终止条件
while curr_epoch < max_epochs:
    # 遍历用户设置的工作流,例如 workflow = [('train', 2),('val', 1)]
    for i, flow in enumerate(workflow):
        # mode 是工作流函数,例如 train, epochs 是迭代次数
        mode, epochs = flow
        # 要么调用 self.train(),要么调用 self.val()
        epoch_runner = getattr(self, mode)
        # 运行对应工作流函数
        for _ in range(epochs):
            epoch_runner(data_loaders[i], **kwargs)
"""

TRAIN = """
# epoch_runner 目前可以是 train 或者 val
def train(self, data_loader, **kwargs):
    # 遍历 dataset,共返回一个 epoch 的 batch 数据
    for i, data_batch in enumerate(data_loader):
        self.call_hook('before_train_iter')
        # 验证时候 train_mode=False
        self.run_iter(data_batch, train_mode=True, **kwargs)
        self.call_hook('after_train_iter')
    self.call_hook('after_train_epoch')
"""

ITERATIONS = """
# 虽然是 iter 单位,但是某些场合需要 epoch 信息,由 IterLoader 提供
iter_loaders = [IterLoader(x) for x in data_loaders]
# 训练终止条件
while curr_iter < max_iters:
    # 遍历用户设置的工作流,例如 workflow = [('train', 2), ('val', 1)]
    for i, flow in enumerate(workflow):
        # mode 是工作流函数,例如 train, iters 是迭代次数
        mode, iters = flow
        # 要么调用 self.train(),要么调用 self.val()
        iter_runner = getattr(self, mode)
        # 运行对应工作流函数
        for _ in range(iters):
            iter_runner(iter_loaders[i], **kwargs)
"""

VAL = """
# iter_runner 目前可以是 train 或者 val
def val(self, data_loader, **kwargs):
    # 获取 batch 数据,用于一次迭代
    data_batch = next(data_loader)
    self.call_hook('before_val_iter')
    outputs = self.model.val_step(data_batch, self.optimizer, **kwargs)
    self.outputs = outputs
    self.call_hook('after_val_iter')
"""

PARTS = """
# 模型类初始化
model=...
# 优化器类初始化,典型值 cfg.optimizer = dict(type='SGD', lr=0.1, momentum=0.9, weight_decay=0.0001)
optimizer = build_optimizer(model, cfg.optimizer)
# 工作流对应的 dataloader 初始化
data_loaders = [
    build_dataloader(
        ds,
        cfg.data.samples_per_gpu,
        cfg.data.workers_per_gpu,
        ...) for ds in dataset
]
"""

RUNNER = """
runner = build_runner(
    # cfg.runner 典型配置为
    # runner = dict(type='EpochBasedRunner', max_epochs=200)
    cfg.runner,
    default_args=dict(
        model=model,
        batch_processor=None,
        optimizer=optimizer,
        logger=logger))
"""

REGISTERED = """
# 注册定制必需的 hook
runner.register_training_hooks(
    # lr相关配置,典型为
    # lr_config = dict(policy='step', step=[100, 150])
    cfg.lr_config,
    # 优化相关配置,例如 grad_clip 等
    optimizer_config,
    # 权重保存相关配置,典型为
    # checkpoint_config = dict(interval=1),每个单位都保存权重
    cfg.checkpoint_config,
    # 日志相关配置
    cfg.log_config,
    ...)

# 注册用户自定义 hook
# 例如想使用 ema 功能,则可以设置 custom_hooks=[dict(type='EMAHook')]
if cfg.get('custom_hooks', None):
    custom_hooks = cfg.custom_hooks
    for hook_cfg in cfg.custom_hooks:
        hook_cfg = hook_cfg.copy()
        priority = hook_cfg.pop('priority', 'NORMAL')
        hook = build_from_cfg(hook_cfg, HOOKS)
        runner.register_hook(hook, priority=priority)
"""

RUN = """
# workflow 典型为 workflow = [('train', 1)]
# 此时就真正开启了训练
runner.run(data_loaders, cfg.workflow)
"""

#: What stands for the dots of the document, which cannot run by their nature; `model=...` must be a model.
DOTS = [
    ('model=...', 'model=Tiny()'),
    ('        ...) for ds', '        seed=5) for ds'),
    ('cfg.log_config,\n    ...)', 'cfg.log_config)'),
]

CHANGES = Changes('mmcv.md')


def test_the_four_steps_as_they_stand(tmp_path):
    cfg = Config({**copy.deepcopy(SEED_CONFIG), **SEED_CONFIG['training_hooks'], 'work_dir': str(tmp_path / 'own')})
    cfg.runner.work_dir = cfg.work_dir
    text = PARTS + RUNNER + REGISTERED + RUN
    assert CHANGES.needed_by(text) == []
    for dots, filled in DOTS:
        assert dots in text
        text = text.replace(dots, filled)
    names = [Tiny, build_optimizer, build_dataloader, build_runner, build_from_cfg]
    space = {each.__name__: each for each in names} | {'HOOKS': HOOKS, 'logger': get_logger('of the document')}
    torch.manual_seed(0)
    exec(
        text,
        space | {'cfg': cfg, 'optimizer_config': cfg.optimizer_config, 'dataset': [Noisy(20), Noisy(8)]},
        made := {},
    )
    other = the_four_steps(tmp_path / 'other')
    assert torch.equal(weights(made['runner'].model), weights(other.model))
    assert [hook.__class__ for hook in made['runner'].hooks] == [hook.__class__ for hook in other.hooks]


class Live(dict):
    """Names of a listing that stand for what changes while it runs."""

    def __getitem__(self, name):
        found = super().__getitem__(name)
        return found() if name.startswith('curr_') else found


@pytest.mark.parametrize('kind, listing, limit', [('epoch', EPOCHS, 'epochs'), ('iter', ITERATIONS, 'iters')])
@pytest.mark.parametrize('workflow', [[('train', 2), ('val', 1)], [('train', 1)], [('val', 1), ('train', 1)]])
def test_the_loops_as_they_stand(kind, listing, limit, workflow):
    """Its pseudocode, with the counters of the runner for its `curr_epoch` and `curr_iter`: the same points."""
    found = []
    for is_listing in (True, False):
        runner, heard = tiny_runner(kind, **{f'max_{limit}': 4}), Recorder()
        runner.register_hook(OptimizerHook())
        runner.register_hook(heard)
        loaders = [loader(8 if mode == 'train' else 4) for mode, _ in workflow]
        if is_listing:
            names = Live(curr_epoch=lambda: runner.epoch, curr_iter=lambda: runner.iter, self=runner, kwargs={})
            names |= {f'max_{limit}': 4, 'workflow': workflow, 'data_loaders': loaders}
            with runner.custom_loop(loaders, workflow):
                exec(listing, {'IterLoader': IterLoader}, names)
        else:
            runner.run(loaders, workflow)
        found.append((heard.names(), runner.iter, runner.model.losses, runner.outcome.kind))
    assert found[0] == found[1]


def test_each_validation_of_a_custom_loop_is_logged():
    losses, scores = [], []

    class Note(Hook):
        def after_val_iter(self, runner):
            losses.append(float(runner.outputs['loss']))

        def after_evaluate(self, runner, found):
            scores.append(found['loss'])

    runner, batches = tiny_runner('iter', max_iters=2), [loader(4), loader(8, shuffle=False)]
    runner.register_hook(Note())
    with runner.custom_loop(batches, [('train', 1), ('val', 1)]):
        training, validation = map(IterLoader, batches)
        for _ in range(2):
            runner.train(training)
            runner.val(validation)
            runner.val(validation)
    assert len(losses) == 4
    assert scores == pytest.approx(losses)


def with_method(base, listing):
    """A subclass with the listing as its method."""
    exec(listing, {}, methods := {})
    return type('Literal', (base,), methods)


def logged(kind, folder, workflow, **limits):
    """What a training logs, without its times; its weights and points."""
    runner, heard = tiny_runner(kind, work_dir=folder, **limits), Recorder()
    log = {'interval': 1, 'hooks': [{'type': 'TextLoggerHook'}]}
    runner.register_training_hooks({'policy': 'step', 'step': [1]}, {}, {'interval': 1}, log)
    runner.register_hook(heard)
    runner.run([loader(8 if mode == 'train' else 4) for mode, _ in workflow], workflow)
    lines = [json.loads(line) for line in next(folder.glob('*.log.json')).read_text().splitlines()]
    own = [
        {k: v for k, v in line.items() if k not in ('time', 'data_time', 'memory', 'timestamp')} for line in lines[1:]
    ]
    return own, weights(runner.model).tolist(), heard.names()


def test_the_train_of_the_document(tmp_path):
    """With the lines that count, it is the runner's own: the same log, weights and points."""
    kinds = EpochBasedRunner, with_method(EpochBasedRunner, CHANGES.applied(TRAIN))
    workflow = [('train', 1), ('val', 1)]
    ours, own = (logged(kind, tmp_path / kind.__name__, workflow, max_epochs=3) for kind in kinds)
    assert own == ours


@pytest.mark.parametrize('row', CHANGES.rows)
def test_the_page_names_no_change_that_is_not_needed(row, tmp_path):
    """Without a change an error says what is missing, or the log is another one."""
    kind = with_method(EpochBasedRunner, CHANGES.applied(TRAIN, without=row))
    workflow = [('train', 1), ('val', 1)]
    found = []
    with suppress(RuntimeError):
        found.append(logged(kind, tmp_path / 'own', workflow, max_epochs=3))
    assert found != [logged(EpochBasedRunner, tmp_path / 'ours', workflow, max_epochs=3)]


def test_the_val_of_the_document(tmp_path):
    """It runs unchanged: its points are called and the weights are the same. It logs nothing, as the page says."""
    assert CHANGES.needed_by(VAL) == []
    assert 'self.outputs = outputs' in CHANGES.differs
    kinds = IterBasedRunner, with_method(IterBasedRunner, VAL)
    workflow = [('train', 2), ('val', 1)]
    ours, own = (logged(kind, tmp_path / kind.__name__, workflow, max_iters=4) for kind in kinds)
    assert own[:2] == ([line for line in ours[0] if line['mode'] == 'train'], ours[1])
    beyond = 'after_forward', 'after_evaluate'  # which the document does not know
    assert [point for point in own[2] if point not in beyond] == [point for point in ours[2] if point not in beyond]


#: The settings that the document quotes; 200 epochs are too many for a test.
QUOTED = """
workflow = [('train', 2), ('val', 1)]
workflow = [('train', 1)]
workflow = [('train', 3), ('val', 1)]
workflow = [('val', 1), ('train', 1)]
optimizer = dict(type='SGD', lr=0.1, momentum=0.9, weight_decay=0.0001)
runner = dict(type='EpochBasedRunner', max_epochs=200)
lr_config = dict(policy='step', step=[100, 150])
checkpoint_config = dict(interval=1)
custom_hooks=[dict(type='EMAHook')]
"""


def test_the_settings_that_the_document_quotes(tmp_path):
    model = Tiny()
    settings = [Config.fromstring(line, '.py') for line in QUOTED.strip().splitlines()]
    cfg = {name: value for each in settings for name, value in each._cfg_dict.items()}
    optimizer = build_optimizer(model, cfg['optimizer'])
    for each in settings[:4]:
        runner = build_runner(cfg['runner'], {'model': model, 'optimizer': optimizer, 'work_dir': str(tmp_path)})
        assert runner.max_epochs == 200
        runner.register_training_hooks(
            cfg['lr_config'], {}, cfg['checkpoint_config'], custom_hooks_config=copy.deepcopy(cfg['custom_hooks'])
        )
        runner._max_epochs = 3
        runner.run([loader(8) for _ in each.workflow], each.workflow)
        assert (runner.epoch, runner.outcome.kind) == (3, 'completed')


def test_the_four_steps_of_the_seed_document(tmp_path):
    whole = the_four_steps(tmp_path / 'whole')
    saved = sorted(path.name for path in (tmp_path / 'whole').glob('*.pth'))
    assert saved == ['epoch_1.pth', 'epoch_2.pth', 'epoch_3.pth', 'epoch_4.pth', 'latest.pth']
    assert (whole.epoch, whole.iter) == (4, 20)
    assert whole.current_lr() == [pytest.approx(0.001)]
    lines = [json.loads(line) for line in next((tmp_path / 'whole').glob('*.log.json')).read_text().splitlines()]
    assert [line['mode'] for line in lines[1:]] == ['train', 'train', 'val'] * 4
    assert all(line['grad_norm'] > 0 for line in lines[1:] if line['mode'] == 'train')
    resumed = the_four_steps(tmp_path / 'resumed', resume_from=tmp_path / 'whole' / 'epoch_2.pth', seed=9)
    assert resumed.iter == 20
    assert torch.equal(weights(resumed.model), weights(whole.model))
    loaded = the_four_steps(tmp_path / 'loaded', load_from=tmp_path / 'whole' / 'epoch_2.pth', seed=9)
    assert len(loaded.model.losses) == 20
    assert loaded.model.losses[0] != whole.model.losses[0]


@pytest.mark.parametrize('kind', ['epoch', 'iter'])
def test_val_step_gets_the_optimizer_from_the_epoch_runner_only(kind):
    """The seed document says always; MMCV's code, which we follow, hands it on in the epoch runner alone."""
    given, kept = [], []

    class Asks(Tiny):
        def val_step(self, *args, **kwargs):
            given.append((len(args), args[1:], kwargs))
            return {**super().val_step(args[0]), 'mine': len(given)}

    class Look(Hook):
        def after_val_iter(self, runner):
            kept.append(runner.outputs['mine'])

    runner = tiny_runner(kind, model=Asks(), max_iters=2)
    runner.register_hook(Look())
    runner.run([loader(8), loader(4)], [('train', 2 if kind == 'iter' else 1), ('val', 1)])
    assert given == [(2, (runner.optimizer,), {}) if kind == 'epoch' else (1, (), {})]
    assert kept == [1]


@pytest.mark.parametrize('kind', ['epoch', 'iter'])
def test_what_hooks_find_at_which_point(kind):
    found = {}

    class Look(Hook):
        def before_train_iter(self, runner):
            found['before'] = (runner.data_batch is not None, runner.mode)

        def after_train_iter(self, runner):
            found['after'] = (runner.data_batch is not None, 'loss' in runner.outputs)

        def after_epoch(self, runner):
            found['epoch'] = (runner.data_batch is not None, 'loss' in runner.outputs)

    runner = tiny_runner(kind, max_iters=2)
    runner.register_hook(Look())
    runner.run([loader(8)], [('train', 1)])
    # A batch is let go as soon as its iteration is over: it may be most of a GPU's memory.
    assert found == {'before': (True, 'train'), 'after': (True, True), 'epoch': (False, True)}


def test_averages_are_weighted_by_the_number_of_samples():
    logged = []

    class Sizes(Tiny):
        def train_step(self, data, optimizer):
            return {**super().train_step(data, optimizer), 'log_vars': {'size': len(data[0])}}

    class Look(Hook):
        def after_train_epoch(self, runner):
            runner.log_buffer.average()
            logged.append(runner.log_buffer.output['size'])

    runner = tiny_runner(model=Sizes(), max_epochs=1)
    runner.register_hook(Look())
    runner.run([build_dataloader(Noisy(10), 8, 0, seed=1, round_up=False)], [('train', 1)])
    assert logged == [pytest.approx((8 * 8 + 2 * 2) / 10)]


@pytest.mark.parametrize('base', [EpochBasedRunner, IterBasedRunner])
def test_a_runner_subclass_may_replace_the_step_and_add_a_mode(base):
    """As downstream's runners do (mmgen's DynamicIterBasedRunner, for one)."""

    class Mine(base):
        def run_iter(self, data_batch, train_mode, **kwargs):
            self.sizes = [*getattr(self, 'sizes', []), len(data_batch[0])]
            self.outputs = {'loss': self.model(data_batch[0]).mean(), 'num_samples': len(data_batch[0])}

        def look(self, data_loader, **kwargs):
            self.looked = True

    runner = Mine(Tiny(), max_iters=2)
    runner.run([loader(8), loader(8)], [('look', 1), ('train', 2)])
    assert runner.sizes == [4, 4]
    assert runner.looked


def test_hooks_and_models_of_a_users_file_register_by_being_imported(tmp_path, monkeypatch):
    (tmp_path / 'seed_plugin.py').write_text(
        'from runnerkit.hooks import HOOKS, Hook\nfrom runnerkit.nn import MODELS\nfrom torch import nn\n\n\n'
        "@HOOKS.register_module()\nclass SeedPluginHook(Hook):\n    '''A hook.'''\n\n\n"
        "@MODELS.register_module()\nclass SeedPluginNet(nn.Module):\n    '''A model.'''\n"
    )
    (tmp_path / 'cfg.py').write_text("custom_imports = dict(imports=['seed_plugin'])\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    Config.fromfile(str(tmp_path / 'cfg.py'))
    assert 'SeedPluginHook' in HOOKS
    assert 'SeedPluginNet' in MODELS
