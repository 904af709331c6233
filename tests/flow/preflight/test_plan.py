"""Where a plan finds things in its config, and how it says things."""

import pytest
from plans import config, plan

from runnerkit.flow.preflight.plan import Plan, amount, names, parts_of_optimizer
from runnerkit.hooks import CheckpointHook, EMAHook, EvalHook, OptimizerHook, TextLoggerHook


def test_keys_of_hooks(tmp_path):
    hooks = [{'type': 'CheckpointHook', 'out_dir': 'x'}, {'type': 'EMAHook'}, {'type': 'EMAHook'}]
    of = plan(tmp_path, {'custom_hooks': hooks})
    paths = {kind: [of.path_of(hook) for hook in of.hooks_of(kind)] for kind in (CheckpointHook, EMAHook)}
    assert paths[CheckpointHook] == [('checkpoint_config',), ('custom_hooks', 0)]
    assert paths[EMAHook] == [('custom_hooks', 1), ('custom_hooks', 2)]
    assert [of.path_of(hook) for hook in of.hooks_of(OptimizerHook, EvalHook)] == [
        ('optimizer_config',),
        ('evaluation',),
    ]
    (logger,) = of.hooks_of(TextLoggerHook)
    assert of.key_of(logger, 'interval') == ('log_config', 'interval')
    assert of.key_of(logger, 'by_epoch') == ('log_config', 'hooks', 0, 'by_epoch')
    of = plan(tmp_path, {'log_config.hooks': [TextLoggerHook()]})
    assert of.key_of(of.hooks_of(TextLoggerHook)[0], 'interval') == ('log_config', 'hooks', 0, 'interval')


def test_hooks_that_no_config_names(tmp_path):
    of = plan(tmp_path)
    of.runner.register_hook(EMAHook())
    later = Plan(of.cfg, of.runner, of.loaders, of.workflow)
    (hook,) = later.hooks_of(EMAHook)
    assert later.path_of(hook) == later.key_of(hook, 'momentum') == ()
    assert later.warning((), 'what', 'way out').key == ''


@pytest.mark.parametrize(
    'optimizer, expected',
    [
        ({'type': 'SGD'}, [(('optimizer',), '')]),
        ({'G': {'type': 'SGD'}, 'D': {'type': 'SGD'}}, [(('optimizer', 'G'), 'G'), (('optimizer', 'D'), 'D')]),
        ({}, [(('optimizer',), '')]),
        (None, []),
    ],
)
def test_optimizers_of_a_config(optimizer, expected):
    found = parts_of_optimizer(Plan(cfg=config({'optimizer': optimizer})))
    assert [(path, name) for path, name, _ in found] == expected


def test_values_of_a_config():
    of = Plan(cfg=config({'optimizer': None}))
    assert of.get('runner', 'max_epochs') == 3
    assert (
        of.get('optimizer', 'lr') is of.get('missing', 'x') is of.get('workflow', 'x') is Plan().get('runner') is None
    )


def test_numbers_and_lists_in_messages():
    assert [amount(1, True), amount(0, False), amount(2, True)] == ['1 epoch', '0 iterations', '2 epochs']
    assert names(['a', 'b', 'c']) == 'a, b, c'
    assert names(['a', 'b', 'c', 'd', 'e']) == 'a, b, c and 2 more'
