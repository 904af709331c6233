"""Unknown keys."""

from pathlib import Path

import pytest

from runnerkit.config import Config, PreflightError, keys, keys_of_other_tools, refuse_unread_keys, unread_keys

GOOD = """
norm = dict(mean=[1.0])
model = dict(type='Net', depth=3, train_cfg=dict(iou_thr=0.5))
data = dict(samples_per_gpu=4, workers_per_gpu=0, train=dict(type='Points', norm=norm), val=dict(type='Points'))
optimizer = dict(type='SGD', lr=0.1)
optimizer_config = dict(cumulative_iters=1)
lr_config = dict(policy='step', step=[2])
runner = dict(type='EpochBasedRunner', max_epochs=3)
checkpoint_config = dict(interval=1)
evaluation = dict(interval=1, metric='mAP')
log_config = dict(interval=2, hooks=[dict(type='TextLoggerHook')])
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def found(more='', options=None, name='cfg.py'):
    """What is found in the good config with ``more`` after it."""
    Path('good.py').write_text(GOOD)
    Path(name).write_text(f"_base_ = 'good.py'\n{more}\n" if name.endswith('.py') else more)
    cfg = Config.fromfile(name)
    cfg.merge_from_dict(options or {})
    return unread_keys(cfg)


def test_a_good_config_has_nothing_to_find():
    assert found() == []
    assert found('model = dict(loss_aa=1, loss_bb=1)', {'model.loss_aa': 2}) == []
    assert found(options={'optimizer.lr': 0.2, 'runner.max_epochs': 1, 'model.new': 1, 'seed': 1}) == []


# Keys of somebody else's classes, and own splits.
ALLOWED = [
    'data = dict(holdout=dict(type="Points"), holdout_dataloader=dict(shuffle=True))',
    'data = dict(many=[dict(type="Points"), dict(type="Points")])',
    'data = dict(train=dict(tpye=1), train_dataloader=dict(batch_size=2, num_workers=1))',
    'runner = dict(_delete_=True, type="MyRunner", max_epoch=3)\ncheckpoint_config = dict(mine=1)',
    'runner = [dict(name="train", epochs=1)]',
    'optimizer_config = dict(type="MyHook", grad_clp=1, grad_clip=dict(max_nrm=1))',
    'optimizer_config = dict(grad_clip=dict(later=1))',  # a later torch may know it
    'optimizer = dict(constructor="Mine", paramwise_cfg=dict(norm_decay_mul=0))',
    '_a = dict(batch=1)\ndataloader = dict(_a)\ndata = dict(train=dict(x=dataloader))',
    'optimizer = dict(nesterovv=True)',
    'lr_config = dict(policy="mine", gama=1)',
    'lr_config = dict(policy="ExponentialLR", gamma=1)',
    'evaluation = dict(metric_options=dict(topk=1))',
    'custom_hooks = [dict(type="EMAHook", momentumm=1)]',
    'model = dict(dept=3)',
    'log_config = None\nfp16 = None\ndata = dict(val=None)',
    'total_epochs = 3',
    'auto_scale_lr = dict(enable=False, base_batch_size=16)',
    'checkpoint_config = dict(filename_tmpl="{}.pth", create_symlink=False)',
    '_mine = 3',
    'mine = 3\noptimizer = dict(lr=mine)',
    'optimizr = 0.1\noptimizer = dict(lr=optimizr)',
    'optimizer = dict(lr={{ _base_.optimizer.lr }})',
    'mine = 3\nseed = globals()["mi" + "ne"]',
    'flow = None',
    'part = dict(interval=2)',  # of log_config
    'dataset_type = "Points"',  # set anew to what it is made of
    'norm = dict(mean=[1.0])',
    'iou_thr = 0.5',
    'opencv_num_threads = 0\nmp_start_method = "fork"\ngpu_ids = [0]',
]


@pytest.mark.parametrize('text', ALLOWED)
def test_what_may_be_read_by_somebody_is_left_alone(text):
    assert found(text) == []


# Top-level keys: the level, and words of the message.
TOP_LEVEL = {
    'optimizer_confg = 3': ('warning', 'optimizer_confg', "Did you mean 'optimizer_config'"),
    'evalution = True': ('warning', 'evalution', "Did you mean 'evaluation'"),
    'mine = 3': ('warning', 'mine', 'begin its name with an underscore'),
    'max_epochs = 5': ('warning', 'max_epochs', 'Write runner.max_epochs'),
    'evaluate = dict(interval=7)': ('warning', 'evaluate', 'Write evaluation.'),
    'lr_scheduler = dict(T_max=3)': ('warning', 'lr_scheduler', 'Write lr_config, such as'),
    'batch_size = 64': ('warning', 'batch_size', 'Write data.batch_size'),
    'norm = dict(mean=[2.0])': ('warning', 'norm', 'begin its name'),  # the file that reads it has been executed
    'pipeline = ["nas"]': ('warning', 'pipeline', 'begin its name'),
}


@pytest.mark.parametrize('text', TOP_LEVEL)
def test_top_level_keys_that_no_file_reads(text):
    level, key, words = TOP_LEVEL[text]
    (finding,) = found(text)
    assert (finding.level, finding.key, finding.where) == (level, key, 'cfg.py:2')
    assert words in str(finding)
    refuse_unread_keys(Config.fromfile('cfg.py'))


def test_a_misspelt_section_in_place_of_one_that_a_run_needs_is_an_error():
    Path('cfg.py').write_text('modle = dict(type="Net")\n')
    assert [(each.level, each.key) for each in unread_keys(Config.fromfile('cfg.py'))] == [('error', 'modle')]


@pytest.mark.parametrize(
    'text, level',
    [
        ('evaluations = dict(interval=1, save_best="accuracy")', 'error'),
        ('evalution = dict(interval=1)', 'error'),
        ('checkpoint_configs = dict(interval=2)', 'error'),
        ('lr_confg = dict(policy="step", step=[1])', 'error'),
        ('optimizer_configs = dict(grad_clip=None)', 'error'),
        ('custom_hook = [dict(type="EMAHook")]', 'error'),
        ('optimzre = dict(lr=0.1)', 'error'),  # two letters, beside the section itself
        ('models = dict(depth=3)', 'error'),
        ('evaluations = dict(colour="red")', 'error'),
        ('evaluations = None', 'error'),
        ('custom_hook = ["a"]', 'error'),
        ('flwo = dict(x=1)', 'warning'),  # short names may be anything
        ('evaluations = 3', 'warning'),
        ('mode = "fast"', 'warning'),
        ('models = dict(depth=3)\ntraining = dict(x=1)', 'warning'),  # an Experiment reads any key
        ('models = dict(depth=3)\nflow = dict(startup="mine.py")', 'warning'),  # a stage reads any key
        ('models = dict(small=dict(a=1))', 'warning'),  # a written config: what `model` was made of
        ('models = dict(depth=3)\n_x = models', None),
    ],
)
def test_a_misspelt_section_of_the_right_form_is_an_error(text, level):
    """The run would train without it, and end well."""
    Path('cfg.py').write_text(f'model = data = optimizer = runner = dict(a=1)\n{text}\n')
    key = text.split()[0]
    levels = [each.level for each in unread_keys(Config.fromfile('cfg.py')) if each.key == key]
    assert levels == ([level] if level else [])


def test_a_similar_key_that_a_file_of_the_chain_reads_is_no_misspelt_section():
    Path('base.py').write_text('evaluations = dict(depth=2)\n_depth = evaluations["depth"]\n')
    Path('cfg.py').write_text("_base_ = 'base.py'\nevaluations = dict(depth=3)\n")
    assert [each.level for each in unread_keys(Config.fromfile('cfg.py'))] == ['warning']  # too late for the base
    Path('base.py').write_text('seed = 3\n')
    assert [each.level for each in unread_keys(Config.fromfile('cfg.py'))] == ['error']


def test_where_runnerkit_stands_for_mmcv_a_misspelt_section_is_a_warning(monkeypatch):
    Path('cfg.py').write_text(GOOD + 'optimzer = dict(lr=0.2)\n')
    assert [each.level for each in unread_keys(Config.fromfile('cfg.py'))] == ['error']
    monkeypatch.setattr(keys, 'acts_as_mmcv', lambda: True)
    assert [each.level for each in unread_keys(Config.fromfile('cfg.py'))] == ['warning']


def test_a_variable_may_be_read_by_a_file_that_has_its_file_as_a_base():
    Path('base.py').write_text('mine = 3\n')
    Path('cfg.py').write_text("_base_ = 'base.py'\nseed = {{ _base_.mine }}\n")
    assert unread_keys(Config.fromfile('cfg.py')) == []
    cfg = Config.fromfile('cfg.py')
    cfg.merge_from_dict({'mine': 4})
    assert [each.where for each in unread_keys(cfg)] == ['--cfg-options']  # too late for that file
    Path('cfg.py').write_text("_base_ = 'base.py'\nseed = 3\n")
    assert [each.where for each in unread_keys(Config.fromfile('cfg.py'))] == ['base.py:1']


def test_a_config_with_its_variables_filled_in_is_left_alone():
    Path('cfg.py').write_text(
        f"root = 'data/x'\nsize = (3, 3)\n{GOOD}\ndata['val'].update(size=size, path=root + '/y')"
    )
    cfg = Config.fromfile('cfg.py')
    assert 'norm = dict' in cfg.pretty_text
    cfg.dump('dumped.py')
    assert unread_keys(Config.fromfile('dumped.py')) == []


# --cfg-options: what each is told, if anything.
OPTIONS = {
    'optimzer.lr': ('error', "Did you mean 'optimizer'"),
    'optimizer.momentun': None,  # SGD says so, and it is near to no key that is there
    'optimizer.lrr': None,
    'model.train_cfg.iou_thrr': ('error', 'Did you mean model.train_cfg.iou_thr?'),
    'model.depht': ('warning', 'Did you mean model.depth?'),
    'data.samples_per_gp': ('error', "Did you mean 'samples_per_gpu'"),
    'data.samples_pr_gpu': ('error', "Did you mean 'samples_per_gpu'"),
    'runner.max_epoch': ('error', "Did you mean 'max_epochs'"),
    'evaluation.intervl': ('error', "Did you mean 'interval'"),
    'log_config.hooks.0.tpye': ('warning', 'Did you mean log_config.hooks.0.type?'),
    'norm.mean': ('warning', 'Set data.train.norm'),
    'dataset_type': ('warning', 'Set the keys that depend on it'),
    'max_epochs': ('warning', 'Set runner.max_epochs'),
}


@pytest.mark.parametrize('key', OPTIONS)
def test_options(key):
    findings = found(options={key: 7})
    if OPTIONS[key] is None:
        assert findings == []
        return
    (finding,) = findings
    assert (finding.level, finding.where) == (OPTIONS[key][0], '--cfg-options')
    assert key.startswith(finding.key)
    assert OPTIONS[key][1] in str(finding)


def test_only_some_sections_may_matter():
    Path('cfg.py').write_text(GOOD + "runner['max_epoch'] = 3\ndata['shufle'] = True\n")
    cfg = Config.fromfile('cfg.py')
    with pytest.raises(PreflightError, match='data.shufle') as caught:
        refuse_unread_keys(cfg, ['model', 'data'])
    assert 'max_epoch' not in str(caught.value)
    with pytest.raises(PreflightError, match='(?s)data.shufle.*runner.max_epoch'):
        refuse_unread_keys(cfg)
    cfg.merge_from_dict({'modle.depth': 3})
    with pytest.raises(PreflightError, match='modle'):
        refuse_unread_keys(cfg, ['model'])


# Other systems' shapes get one warning together.
FOREIGN = {
    'paddle.yaml': (
        'workspace: w\nmode: train\nphase: [{name: p}]\nhyper_parameters: {optimizer: {class: Adam}}\n'
        'dataset: [{name: d}]\nrunner: [{name: train, class: train}]\n',
        'PaddleRec: workspace, mode, phase, hyper_parameters, dataset',
    ),
    'vega.yaml': (
        'general: {backend: pytorch}\nnas: {pipe_step: {type: SearchPipeStep}}\n'
        'fully_train: {pipe_step: {type: TrainPipeStep}}\n',
        'Vega: general, nas, fully_train',
    ),
    'engine.py': ('optim_wrapper = dict(optimizer=1)\nparam_scheduler = []\nmodel = 1\n', 'MMEngine: '),
}


@pytest.mark.parametrize('name', FOREIGN)
def test_configs_of_other_systems(name):
    text, words = FOREIGN[name]
    Path(name).write_text(text)
    (finding,) = unread_keys(Config.fromfile(name))
    assert finding.level == 'warning'
    assert words in finding.what


def test_the_config_of_a_search():
    Path('search.yaml').write_text('general: {}\npipeline: [nas]\nnas: {pipe_step: {type: SearchPipeStep}}\n')
    (finding,) = unread_keys(Config.fromfile('search.yaml'))
    assert (finding.level, finding.key, finding.where) == ('error', 'pipeline', 'search.yaml:2')
    assert finding.way_out == 'Run it with `runnerkit search CONFIG`.'


def test_configs_without_a_file():
    cfg = Config({'model': 1, 'free': 2, 'optimzer_config': {}, 'data': {'shufle': 1, 3: 4}, 'runner': 'x'})
    assert [(each.level, each.key, each.where) for each in unread_keys(cfg)] == [
        ('warning', 'optimzer_config', ''),
        ('error', 'data.shufle', ''),
        ('error', 'data.3', ''),
    ]
    assert (
        unread_keys({'lr_config': {'policy': 3, 'step': 1}, 'evaluation': {'by_epochs': True}, 4: 5})[0].level
        == 'warning'
    )
    assert unread_keys(None) == []


def test_keys_of_tools_are_listed_together():
    Path('cfg.py').write_text('gpu_ids = [0]\nopencv_num_threads = 0\nmodel = 1\n')
    assert keys_of_other_tools(Config.fromfile('cfg.py')) == ['opencv_num_threads', 'gpu_ids']


@pytest.mark.parametrize('extension', ['yaml', 'json', 'py'])
def test_many_unknown_keys_are_counted(tmp_path, extension, monkeypatch):
    """Each of them is compared with all known ones, and looked for in all values."""
    asked = []
    monkeypatch.setattr(keys, 'near_miss', lambda name, known, allowed=None: asked.append(name))
    lines = {'yaml': 'key{0}: {0}\n', 'py': 'key{0} = {0}\n', 'json': '"key{0}": {0},'}[extension]
    text = ''.join(lines.format(number) for number in range(3000))
    file = tmp_path / f'many.{extension}'
    file.write_text('{' + text[:-1] + '}' if extension == 'json' else text)
    found = unread_keys(Config.fromfile(file))
    assert len(found) == 201
    assert len(set(asked)) == 200
    assert 'this config has 3000 unknown top-level keys; the last 2800 are not checked' in str(found[-1])
