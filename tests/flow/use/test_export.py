"""A trained model as a file, compared with the model."""

import json

import numpy as np
import pytest
import torch
from torch import nn

import runnerkit
from runnerkit.checkpoint import save_checkpoint
from runnerkit.config import Config
from runnerkit.data import DATASETS
from runnerkit.flow.use import export as flow_export
from runnerkit.flow.use.export import network_of, outputs_of
from runnerkit.nn import MODELS, Supervised
from runnerkit.utils.seed import set_random_seed


class Pairs(torch.utils.data.Dataset):
    """Two inputs and a target, by name."""

    @classmethod
    def from_files(cls, files, **settings):
        return [{'a': torch.from_numpy(np.load(file)), 'b': torch.ones(2)} for file in files]

    def __len__(self):
        return 5

    def __getitem__(self, i):
        return {'a': torch.full((4,), i / 5), 'b': torch.tensor([1.0, i]), 'target': torch.tensor(0)}


class Tuples(Pairs):
    def __getitem__(self, i):
        return tuple(super().__getitem__(i).values())


class Two(nn.Module):
    """Two inputs, and outputs in a dict; with methods of its own."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 3), nn.Linear(2, 3)
        self.norm = nn.BatchNorm1d(3)

    def forward(self, a, b, scale=None):
        logits = self.norm(self.first(a) + self.second(b))
        return {'logits': logits, 'classes': (logits.argmax(1), logits.softmax(1))}

    def features(self, a):
        return self.first(a)


class Dummy(Two):
    """In MMCV's style."""

    def forward(self, a, return_loss=True):
        raise NotImplementedError

    def forward_dummy(self, a):
        return (self.first(a),)


class Counts(Two):
    """It changes its buffers when it is called, and has an output that is called like an input."""

    def forward(self, a, b):
        self.norm.running_mean += 1
        return {'a': self.first(a)}


def bfloats(self, a, b):
    return nn.functional.linear(a.bfloat16(), self.first.weight.bfloat16(), torch.ones(3).bfloat16())


#: What `Two` computes in other classes, by their names.
FORWARDS = {
    'Branches': lambda self, a, b: a if a.sum() > 100 else self.first(a),
    'Fixed': lambda self, a, b: self.first(a).view(2, -1) if len(a) == 2 else self.first(a),
    'Random': lambda self, a, b: self.first(a) + torch.rand(3),
    'Nans': lambda self, a, b: (self.first(a) * float('nan'),),
    'Nothing': lambda self, a, b: self.first(a)[:0],
    'Bfloats': bfloats,
    'InPlace': lambda self, a, b: self.first(a.mul_(2)),
    'Best': lambda self, a, b: self.first(a).topk(2),
    'Texts': lambda self, a, b: {'logits': self.first(a), 'name': 'text'},
}
CLASSES = (Two, Dummy, Counts, *(type(name, (Two,), {'forward': forward}) for name, forward in FORWARDS.items()))


@pytest.fixture
def cfg(tmp_path, monkeypatch):
    """The config of a model with two inputs, and its work dir with a checkpoint."""
    for registry, classes in ((DATASETS, (Pairs, Tuples)), (MODELS, CLASSES)):
        for each in classes:
            monkeypatch.setitem(registry.module_dict, each.__name__, each)
    return use(tmp_path, 'Two')


def use(folder, name, **settings):
    model = dict(type='Supervised', model=dict(type=name), loss=dict(type='CrossEntropyLoss'), inputs=['a', 'b'])
    model.update(settings)
    if settings.get('type', 'Supervised') != 'Supervised':
        model = settings
    data = dict(samples_per_gpu=2, train=dict(type='nowhere.Data'), val=dict(type='Pairs'))
    cfg = Config(dict(model=model, data=data, work_dir=str(folder / 'run')))
    set_random_seed(0)
    built = MODELS.build(cfg.model)
    for name, value in built.state_dict().items():
        if 'running' in name:
            value.uniform_(0.5, 1.5)
    built.CLASSES = ('one', 'two', 'three')
    save_checkpoint(built, f'{cfg.work_dir}/latest.pth', meta={'config': cfg.pretty_text, 'epoch': 3})
    return cfg


def ran(path, *inputs):
    """What the file computes, by a reader that knows nothing of us."""
    if path.suffix == '.pt2':
        found = torch.export.load(path).module()(*inputs)
        return [found['logits'], *found['classes']]
    import onnxruntime

    session = onnxruntime.InferenceSession(path)
    given = {each.name: value.numpy() for each, value in zip(session.get_inputs(), inputs)}
    return [torch.from_numpy(each) for each in session.run(None, given)]


@pytest.mark.parametrize('extension', ['.pt2', '.onnx'])
def test_programs_take_any_number_of_samples(cfg, tmp_path, extension):
    if extension == '.onnx' and torch.__version__.startswith('2.6.'):
        pytest.skip('this torch exports no tuple among the outputs to ONNX')
    path = tmp_path / f'two{extension}'
    told = runnerkit.export(cfg, path)
    model = runnerkit.load_model(cfg.work_dir, cfg).model
    for count in (1, 2, 7):
        a, b = torch.randn(count, 4), torch.randn(count, 2)
        wanted = model(a, b)
        for found, expected in zip(ran(path, a, b), [wanted['logits'], *wanted['classes']], strict=True):
            assert torch.allclose(found, expected, atol=1e-5)
    assert told.network == 'the network of Supervised (Two)'
    assert told.inputs == {'a': 'float32 [batch, 4]', 'b': 'float32 [batch, 2]'}
    assert told.outputs['logits'] == 'float32 [batch, 3]'
    assert told.outputs['classes_0'] == 'int64 [batch]'
    assert told.difference < 1e-5
    assert 'largest difference from the model: ' in str(told)
    if extension == '.onnx':
        import onnx

        proto = onnx.load(path)
        assert [each.name for each in proto.graph.input] == ['a', 'b']
        assert [each.name for each in proto.graph.output] == ['logits', 'classes_0', 'classes_1']
        assert proto.graph.input[0].type.tensor_type.shape.dim[0].dim_param == 'batch'
        metadata = {each.key: each.value for each in proto.metadata_props}
    else:
        files = {'metadata.json': ''}
        torch.export.load(path, extra_files=files)
        metadata = json.loads(files['metadata.json'])
    assert (metadata['epoch'], metadata['CLASSES']) == ('3', '["one", "two", "three"]')


def test_what_is_exported_and_from_which_example(cfg, tmp_path):
    path = tmp_path / 'x.pt2'
    np.save(tmp_path / 'a.npy', np.zeros(4, np.float32))

    def told(**options):
        found = runnerkit.export(cfg, path, **options)
        return found.network, list(found.inputs)

    network = 'the network of Supervised (Two)'
    assert told(shape=[(4,), (2,)]) == told(inputs=tmp_path / 'a.npy') == told(inputs='val') == (network, ['a', 'b'])
    cfg.data.val.type = 'Tuples'
    cfg.model.inputs = [0, 1]
    assert told() == (network, ['a', 'b'])
    cfg.model = dict(type='Two')
    save_checkpoint(MODELS.build(cfg.model), f'{cfg.work_dir}/latest.pth')
    assert told() == ('Two', ['a', 'b'])
    cfg.data.val.type = 'Pairs'
    assert told() == ('Two', ['a', 'b'])
    cfg.model = dict(type='Dummy')
    assert told() == ('Dummy, method forward_dummy', ['a'])
    assert torch.export.load(path).module()(torch.ones(6, 4))[0].shape == (6, 3)


def test_a_model_around_a_model(cfg):
    class Own(Supervised):
        def forward(self, a):
            return self.model.features(a)

    inputs = dict(model=Two(), loss=nn.MSELoss())
    assert network_of(Supervised(**inputs))[1].__class__ is Two
    own = Own(**inputs)
    assert network_of(own) == ('Own', own)


def test_keyword_arguments_by_their_names(cfg, tmp_path):
    cfg = use(tmp_path, 'Two', inputs=dict(b='b', a='a'))
    for shape in (None, [(2,), (4,)]):
        told = runnerkit.export(cfg, tmp_path / 'x.pt2', shape=shape)
        assert told.inputs == {'a': 'float32 [batch, 4]', 'b': 'float32 [batch, 2]'}


def test_a_shape_needs_no_data(cfg, tmp_path):
    file = tmp_path / 'run' / 'latest.pth'
    with pytest.raises(ValueError, match='--trust'):
        runnerkit.export(file, tmp_path / 'x.pt2')
    assert runnerkit.export(file, tmp_path / 'x.pt2', trust=True).inputs  # data.train, which is nowhere, is not built
    cfg.data.val.type = 'nowhere.Data'
    save_checkpoint(MODELS.build(cfg.model), file, meta={'config': cfg.pretty_text})
    with pytest.raises(KeyError, match='nowhere'):
        runnerkit.export(file, tmp_path / 'y.pt2', trust=True)
    assert runnerkit.export(file, tmp_path / 'z.pt2', shape=[(4,), (2,)], trust=True).inputs
    assert not (tmp_path / 'y.pt2').exists()


def test_networks_that_torch_cannot_take_are_told_with_their_line(cfg, tmp_path):
    for name, text in (
        (
            'Branches',
            r'torch.export cannot take the network of Supervised \(Branches\): Could not guard .*if a.sum\(\)',
        ),
        ('Fixed', r'violated \(batch\)! .*batch .* constant \(2\)\. Write .*forward_dummy'),
        ('Best', r'.pt2 cannot express what .*torch.return_types.topk.*; write tuple\(x.topk\(5\)\)'),
        ('Texts', 'name is a str, but only tensors can be exported'),
    ):
        with pytest.raises((ValueError, TypeError), match=text) as raised:
            runnerkit.export(use(tmp_path, name), tmp_path / 'x.pt2')
        assert 'TORCH_LOGS' not in str(raised.value)
    assert list(tmp_path.glob('x.*')) == []


def test_what_differs_from_the_model_is_not_written(cfg, tmp_path, monkeypatch):
    path = tmp_path / 'x.pt2'
    path.write_text('the earlier one')
    with pytest.raises(ValueError, match=r'x.pt2 was not written: its outputs differ .*allowed: 1e-04'):
        runnerkit.export(use(tmp_path, 'Random'), path)
    assert path.read_text() == 'the earlier one'
    assert runnerkit.export(use(tmp_path, 'Random'), path, tolerance=10).difference > 1e-4

    def fails(inputs):
        raise RuntimeError('no such kernel')

    for run, error, text in (
        (fails, RuntimeError, 'it cannot be run with 3 samples: no such kernel'),
        (lambda inputs: [], ValueError, 'differ from those of the model by inf'),
        (lambda inputs: [torch.ones(2, 3)] * 3, ValueError, 'differ from those of the model by inf'),
    ):
        monkeypatch.setitem(flow_export.FORMATS, '.pt2', lambda network: (b'', run))
        with pytest.raises(error, match=text):
            runnerkit.export(use(tmp_path, 'Two'), path)


def test_where_there_is_nothing_to_compare_nothing_is_written(cfg, tmp_path):
    for name in ('Nans', 'Nothing'):
        with pytest.raises(ValueError, match='are empty or NaN, so that nothing can be compared'):
            runnerkit.export(use(tmp_path, name), tmp_path / 'x.pt2')
        assert not (tmp_path / 'x.pt2').exists()


def test_a_network_that_changes_its_buffers_is_exported_as_the_checkpoint_has_it(cfg, tmp_path):
    cfg = use(tmp_path, 'Counts')
    trained = runnerkit.load_model(tmp_path / 'run', trust=True).model.norm.running_mean
    runnerkit.export(cfg, tmp_path / 'x.pt2')
    assert torch.equal(torch.export.load(tmp_path / 'x.pt2').state_dict['norm.running_mean'], trained)


def test_a_network_that_changes_its_input(cfg, tmp_path):
    assert runnerkit.export(use(tmp_path, 'InPlace'), tmp_path / 'x.pt2').difference <= 1e-4


def test_an_output_with_the_name_of_an_input(cfg, tmp_path):
    onnxruntime = pytest.importorskip('onnxruntime')
    exported = runnerkit.export(use(tmp_path, 'Counts'), tmp_path / 'x.onnx')
    session = onnxruntime.InferenceSession(exported.path, providers=['CPUExecutionProvider'])
    assert 'a' in [each.name for each in session.get_inputs()]
    assert [each.name for each in session.get_outputs()] == ['a_out']


@pytest.mark.thorough  # the other tests of this file
def test_types_that_onnx_runtime_has_no_operations_for(cfg, tmp_path):
    pytest.importorskip('onnxruntime')
    with pytest.raises(ValueError, match=r'ONNX cannot express .*convert it to float32.*write \.pt2'):
        runnerkit.export(use(tmp_path, 'Bfloats'), tmp_path / 'x.onnx')


@pytest.mark.parametrize(
    'one, other, expected',
    [
        ([1.0, 2.0], [1.0, 2.0], 0.0),
        ([0.0, 0.5], [0.0, 0.25], 0.5),
        ([0.0, 2e-5], [0.0, 0.0], 2e-3),
        ([0.0, 100.0], [1.0, 100.0], 0.01),
        ([float('nan'), 1.0], [float('nan'), 1.0], 0.0),
        ([float('nan'), 1.0], [1.0, 1.0], float('inf')),
        ([float('inf'), 1.0], [float('inf'), 1.5], 0.5),
        ([3, 4], [3, 8], 4.0),
        ([500000, 4], [500000, 5], 1.0),
        ([2**60, 4], [2**60 + 1, 4], 1.0),
        ([True, False], [True, True], 1.0),
        ([1j, 2.0], [3j, 2.0], 1.0),
    ],
)
def test_differences_are_relative_to_the_largest_output(one, other, expected):
    assert flow_export._relative(torch.tensor(one), torch.tensor(other)) == pytest.approx(expected)


def test_errors_say_what_to_do(cfg, tmp_path, monkeypatch):
    path = tmp_path / 'x.pt2'
    for options, error, text in (
        (dict(shape=(4,)), TypeError, r'does not fit forward\(a, b, scale=None\) of Two: missing a required .*--shape'),
        (dict(shape=(4, 0)), ValueError, r'whole numbers above 0, such as \(1, 28, 28\), but got \(4, 0\)'),
        (dict(shape=(4,), inputs='val'), ValueError, 'either inputs or of a shape'),
        (dict(shape=[(5,), (2,)]), RuntimeError, r'Supervised \(Two\) does not compute anything from a \(3, 5\), b'),
        (dict(inputs='vla'), FileNotFoundError, r"did you mean 'val'\?.*\(--shape 3,224,224\)"),
        (dict(tolerance=-1), ValueError, 'tolerance must be at least 0'),
    ):
        with pytest.raises(error, match=text):
            runnerkit.export(cfg, path, **options)
    with pytest.raises(ValueError, match="but not as x.onx; did you mean '.onnx'"):
        runnerkit.export('nowhere', 'x.onx')
    with pytest.raises(ValueError, match='s3://x/x.pt2 is a URL: give a local path'):
        runnerkit.export('nowhere', 's3://x/x.pt2')
    del cfg.data['val'], cfg.data['train']
    with pytest.raises(KeyError, match=r'no test and no val and no train.*--shape 3,224,224'):
        runnerkit.export(cfg, path)
    monkeypatch.setattr(flow_export, 'find_spec', lambda name: None)
    with pytest.raises(
        ImportError, match=r'onnx and onnxscript and onnxruntime.*pip install onnx onnxscript onnxruntime'
    ):
        runnerkit.export(cfg, 'x.onnx')
    assert not path.exists()


class Lengths(torch.nn.Module):
    """The mean of the words of a text that the mask leaves."""

    def forward(self, words, mask):
        return (words * mask).sum(1) / mask.sum(1)


def test_named_sizes_may_be_any(tmp_path, monkeypatch):
    monkeypatch.setitem(MODELS.module_dict, 'Lengths', Lengths)
    cfg = Config(dict(model=dict(type='Lengths'), data={}))
    save_checkpoint(Lengths(), f'{tmp_path}/x.pth', meta={'config': cfg.pretty_text})
    both = {'words.1': 'length', 'mask.1': 'length'}
    told = runnerkit.export(f'{tmp_path}/x.pth', tmp_path / 'x.pt2', shape=[(5,), (5,)], dynamic=both, trust=True)
    assert told.inputs == {'words': 'float32 [batch, length]', 'mask': 'float32 [batch, length]'}
    program = torch.export.load(tmp_path / 'x.pt2').module()
    assert program(torch.ones(2, 9), torch.ones(2, 9)).tolist() == [1, 1]
    fixed = runnerkit.export(f'{tmp_path}/x.pth', tmp_path / 'y.pt2', shape=[(5,), (5,)], trust=True)
    assert fixed.inputs['words'] == 'float32 [batch, 5]'
    for dynamic, message in (
        ({'wrods.1': 'n'}, r"'wrods.1' is no size of the inputs; did you mean 'words.1'|'wrods.1' is no size"),
        ({'words.2': 'n'}, r'they have words.1, mask.1'),
        ({'words.0': 'n'}, 'the batch, 0, is always dynamic'),
        ({'words.1': 'batch'}, 'must be a word other than batch'),
        ({'words.1': 'one', 'mask.1': 'other'}, 'torch.export cannot take'),
    ):
        with pytest.raises(ValueError, match=message):
            runnerkit.export(f'{tmp_path}/x.pth', tmp_path / 'z.pt2', shape=[(5,), (5,)], dynamic=dynamic, trust=True)


def test_outputs_by_name():
    x = torch.ones(1)
    assert list(outputs_of({'a': x, 'b': [x, (x, None)]})) == ['a', 'b_0', 'b_1_0']
    assert list(outputs_of(x)) == ['output']
    assert list(outputs_of((x, x))) == ['output_0', 'output_1']
    with pytest.raises(TypeError, match='output_1 is a float, but only tensors can be exported'):
        outputs_of([x, 0.5])
