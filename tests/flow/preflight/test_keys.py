"""The checks of the config alone."""

import pytest
from plans import of_config, said, told

from runnerkit.flow import Options

VAL = {'workflow': [('train', 1), ('val', 1)]}

#: What is changed, the key and the words of the finding, and what mends it; errors first.
ERRORS = [
    ({'runner.max_epochs': '3'}, 'runner.max_epochs', 'a whole number', {'runner.max_epochs': 3}),
    ({'amp': 'fp8'}, 'amp', "'fp8'", {'amp': 'bf16'}),
    ({'amp': True}, 'amp', "Give 'bf16' or 'fp16', or leave amp out", {'amp': 'bf16'}),
    ({'compile': {'mod': 'default'}}, 'compile', "'mod'", {'compile': {'mode': 'default'}}),
    ({'workflow': []}, 'workflow', 'trains nothing', {'workflow': [('train', 1)]}),
    ({'workflow': 'train'}, 'workflow', 'a list of (mode, n)', {'workflow': [('train', 1)]}),
    ({'workflow': [('train', 0)]}, 'workflow', 'at least 1', {'workflow': [('train', 1)]}),
    ({'workflow': [('val', 1)]}, 'workflow', 'never ends', VAL),
    ({**VAL, 'data.val': ..., 'evaluation': None}, 'workflow', 'data.val, which is missing', {'workflow': ...}),
    (
        {'workflow': [('train', 1), ('val_hard', 1)]},
        'workflow',
        "'val_hard' entry validates on data.val_hard, which is missing (data has train, val)",
        {'data.val_hard': {'type': 'support.Noisy'}},
    ),
    (
        {'workflow': [('train', 1), ('test', 1)]},
        'workflow',
        'data.test, which',
        {'data.test': {'type': 'support.Noisy'}},
    ),
    ({'data.val': ...}, 'evaluation', "save_best='error' keeps nothing", {'evaluation': None}),
    ({'runner.max_iters': 5}, 'runner.max_iters', 'both set', {'runner.max_epochs': ...}),
    ({'amp': 'bf16', 'fp16': {}}, 'fp16', 'different precisions', {'amp': 'fp16'}),
    (
        {'amp': 'bf16', 'optimizer_config.amp': 'fp16'},
        'optimizer_config.amp',
        'differs',
        {'optimizer_config.amp': 'bf16'},
    ),
    ({'optimizer.momentum': 9}, 'optimizer.momentum', 'without end', {'optimizer.momentum': 0.9}),
    (
        {'custom_hooks': [{'type': 'EMAHook', 'momentum': '0.001'}]},
        'custom_hooks[0].momentum',
        'Write 0.001',
        {'custom_hooks.0.momentum': 0.001},
    ),
    (
        {'custom_hooks': {'type': 'EmptyCacheHook', 'after_iter': 'no'}},
        'custom_hooks.after_iter',
        'Write False',
        {'custom_hooks.after_iter': False},
    ),
    (
        {'log_config.hooks': [{'type': 'TextLoggerHook', 'interval_exp_name': '9'}]},
        'log_config.hooks[0].interval_exp_name',
        'Write 9',
        {'log_config.hooks.0.interval_exp_name': 9},
    ),
    ({'optimizer.lr': -0.1}, 'optimizer.lr', 'raises the loss', {'optimizer.lr': 0.1}),
    (
        {'optimizer_config.grad_clip': {'max_norm': 0}},
        'optimizer_config.grad_clip.max_norm',
        'never change',
        {'optimizer_config.grad_clip.max_norm': 1},
    ),
    (
        {'optimizer_config.grad_clip': {'norm_type': 2}},
        'optimizer_config.grad_clip',
        'no max_norm',
        {'optimizer_config.grad_clip': None},
    ),
]
WARNINGS = [
    ({'evaluation': ...}, 'data.val', 'never used', {'evaluation': None}),
    ({'evaluation': ...}, 'data.val', 'never used', VAL),
    ({'evaluation': ...}, 'data.val', 'never used', {'runner': ...}),
    ({'load_from': 'a.pth', 'resume_from': 'b.pth'}, 'load_from', 'ignored', {'resume_from': None}),
    ({'auto_resume': True, 'resume_from': 'b.pth'}, 'auto_resume', 'ignored', {'auto_resume': False}),
    ({'cudnn_benchmark': True, 'deterministic': True}, 'cudnn_benchmark', 'no effect', {'deterministic': False}),
    ({'amp': 'fp16', 'fp16': {'loss_scale': 512}}, 'fp16.loss_scale', 'ignored', {'amp': None}),
    ({'total_epochs': 5}, 'total_epochs', 'ignored', {'total_epochs': 3}),
    ({'lr_config.warmup_iters': 3}, 'lr_config.warmup', 'no warm-up', {'lr_config.warmup': 'linear'}),
    (
        {'momentum_config': {'policy': 'step', 'step': 1, 'warmup_ratio': 0.5}},
        'momentum_config.warmup',
        'no warm-up',
        {'momentum_config.warmup_ratio': ...},
    ),
    *(
        (
            {'checkpoint_config.max_keep_ckpts': kept},
            'checkpoint_config.max_keep_ckpts',
            'keeps all',
            {'checkpoint_config.max_keep_ckpts': right},
        )
        for kept, right in ((0, 1), (-5, -1), (-2, 2))
    ),
    (
        {'checkpoint_config.save_optimizer': False, 'auto_resume': True},
        'checkpoint_config.save_optimizer',
        'resume exactly',
        {'auto_resume': None},
    ),
    *(
        ({'data.persistent_workers': True}, 'data.persistent_workers', 'without workers', right)
        for right in ({'data.workers_per_gpu': 1}, {'data.workers': 1}, {'data.val_dataloader': {'num_workers': 1}})
    ),
]


def test_a_hook_of_the_users_own_may_clip_in_another_way():
    clip = {'type': 'PlanClips', 'grad_clip': {'clip_value': 1}}
    assert said(of_config({'optimizer_config': clip})) == []
    ours = {'type': 'Fp16OptimizerHook', 'grad_clip': {'norm_type': 2}}
    assert told(of_config({'optimizer_config': ours}), 'error', 'optimizer_config.grad_clip', 'no max_norm')


@pytest.mark.parametrize(
    'level, wrong, key, words, right', [('error', *c) for c in ERRORS] + [('warning', *c) for c in WARNINGS]
)
def test_wrong_and_right(level, wrong, key, words, right):
    assert told(of_config(wrong), level, key, words), said(of_config(wrong))
    assert said(of_config(wrong, right)) == []


@pytest.mark.parametrize(
    'options, change, key',
    [
        (Options(deterministic=True), {'cudnn_benchmark': True}, 'cudnn_benchmark'),
        (Options(resume_from='a.pth'), {'load_from': 'b.pth'}, 'load_from'),
        (Options(resume_from='a.pth', auto_resume=True), {}, 'auto_resume'),
    ],
)
def test_flags_count_too(options, change, key):
    assert [where for where, _ in said(of_config(change, options=options))] == [('warning', key)]
    assert said(of_config(change)) == []


def test_who_wants_no_validation_needs_no_data_for_it():
    assert said(of_config({'data.val': ...}, options=Options(validate=False))) == []


def test_a_validation_that_no_flag_switches_off():
    assert told(of_config(VAL, options=Options(validate=False)), 'warning', 'workflow', '--no-validate')
    assert said(of_config(options=Options(validate=False))) == said(of_config(VAL)) == []


def test_all_errors_come_together():
    found = said(of_config({'workflow': [], 'amp': 'fp8', 'optimizer.lr': -1, 'total_epochs': 9}))
    assert [where for where, _ in found] == [
        ('error', 'amp'),
        ('error', 'workflow'),
        ('error', 'optimizer.lr'),
        ('warning', 'total_epochs'),
    ]
