"""Predictions of trained models."""

import io
import sys
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn

import runnerkit
from runnerkit.checkpoint import save_checkpoint
from runnerkit.config import Config, PreflightError
from runnerkit.data import DATASETS
from runnerkit.flow.use import predict as prediction
from runnerkit.nn import MODELS, Supervised
from runnerkit.parallel import DataContainer, collate
from runnerkit.utils.seed import set_random_seed


class Rows(torch.utils.data.Dataset):
    """Rows of four numbers, from a generator or from .npy files, with a target."""

    loaded = 0

    def __init__(self, length=10, noise=0.0):
        self.length, self.noise = length, noise

    @classmethod
    def from_files(cls, files, **settings):
        return [(torch.from_numpy(np.load(file)),) for file in files]

    def __len__(self):
        return self.length

    def __getitem__(self, i):
        return torch.full((4,), i / 10) + self.noise * torch.rand(4), torch.tensor(0)


class Old(nn.Linear):
    """A model in MMCV's style."""

    def forward(self, x, return_loss=True):
        assert not return_loss
        return [{'sum': row.sum()} for row in super().forward(x)]


class OldRows(Rows):
    def __getitem__(self, i):
        return {'x': DataContainer(torch.full((4,), i / 10), stack=True, pad_dims=None)}


class Own(nn.Linear):
    """A model that predicts in its own way."""

    answer = staticmethod(lambda out: out)

    def predict(self, data):
        assert not self.training
        assert not torch.is_grad_enabled()
        return type(self).answer(self(data[0]))


class Silent(nn.Linear):
    pass


@pytest.fixture
def cfg(tmp_path, monkeypatch):
    """The config of a model with three outputs, and its work dir with a checkpoint."""
    for registry, classes in ((DATASETS, (Rows, OldRows)), (MODELS, (Old, Own, Silent))):
        for each in classes:
            monkeypatch.setitem(registry.module_dict, each.__name__, each)
    layer = dict(in_features=4, out_features=3)
    cfg = Config(
        dict(
            model=dict(type='Supervised', model=dict(type='Linear', **layer), loss=dict(type='CrossEntropyLoss')),
            data=dict(
                batch_size=4,
                test=dict(type='Rows'),
                noisy=dict(type='Rows', noise=1.0),
                test_dataloader=dict(shuffle=True, drop_last=True),
            ),
            work_dir=str(tmp_path / 'run'),
        )
    )
    save(cfg)
    return cfg


def save(cfg):
    set_random_seed(0)
    save_checkpoint(MODELS.build(cfg.model), f'{cfg.work_dir}/latest.pth', meta={'config': cfg.pretty_text})


def use(cfg, name):
    cfg.model = dict(type=name, in_features=4, out_features=3)
    save(cfg)
    return cfg


def expected(cfg, x=None):
    x = torch.stack([Rows()[i][0] for i in range(10)]) if x is None else x
    model = runnerkit.load_model(cfg.work_dir, cfg)
    return getattr(model, 'model', model)(x).detach()


def test_a_split_in_its_order_and_whole(cfg, monkeypatch):
    sizes, call = [], Supervised.predict
    monkeypatch.setattr(Supervised, 'predict', lambda self, data: sizes.append(len(data[0])) or call(self, data))
    found = runnerkit.predict(cfg, device='cpu')
    assert torch.allclose(torch.stack(found), expected(cfg))
    assert sizes == [4, 4, 2]
    runnerkit.predict(cfg, 'test', batch_size=5, device='cpu')
    assert sizes[3:] == [5, 5]


def test_files(cfg, tmp_path, monkeypatch):
    x = torch.rand(3, 4)
    files = [tmp_path / f'{name}.npy' for name in 'cab']
    for file, row in zip(files, x):
        np.save(file, row.numpy())
    found = runnerkit.predict(cfg, files, batch_size=2)
    assert torch.allclose(torch.stack(found), expected(cfg, x))
    assert torch.equal(torch.stack(runnerkit.predict(cfg, (file for file in files))), torch.stack(found))
    monkeypatch.setenv('HOME', str(tmp_path))
    assert torch.equal(runnerkit.predict(cfg, '~/c.npy')[0], found[0])
    assert torch.equal(runnerkit.predict(cfg, str(files[1]))[0], runnerkit.predict(cfg, [files[1]])[0])


def test_each_way_to_name_the_model(cfg, tmp_path):
    (tmp_path / 'run' / 'cfg.py').write_text(cfg.pretty_text)
    first = torch.stack(runnerkit.predict(cfg))
    (tmp_path / 'other').mkdir()
    (tmp_path / 'run' / 'latest.pth').rename(tmp_path / 'other' / 'epoch_1.pth')
    run, other, file = tmp_path / 'run', tmp_path / 'other', tmp_path / 'other' / 'epoch_1.pth'
    for source, options in (
        (file, {'trust': True}),
        (file, {'config': cfg}),
        (other, {'trust': True}),
        (run, {'checkpoint': other, 'trust': True}),
        (run / 'cfg.py', {'checkpoint': file}),
        (cfg, {'checkpoint': str(file), 'which': 'latest'}),
    ):
        assert torch.equal(torch.stack(runnerkit.predict(source, **options)), first)
    with pytest.raises(FileNotFoundError, match=r'no checkpoint in .*run.* is the work dir of the config: train the'):
        runnerkit.predict(cfg)
    with pytest.raises(FileNotFoundError, match='no checkpoint nothing.pth: [^:]*$'):
        runnerkit.predict(cfg, checkpoint='nothing.pth')


def test_of_the_data_in_a_checkpoint_only_what_is_predicted_is_built(cfg, tmp_path):
    cfg.data.val = dict(clean=dict(type='Rows', length=3), noisy=dict(type='nowhere.Noisy'))
    cfg.data.train = dict(type='nowhere.Train')
    cfg.data.train_dataloader = dict(worker_init_fn=dict(type='nowhere.function'))
    save(cfg)
    file, row = tmp_path / 'run' / 'latest.pth', tmp_path / 'a.npy'
    np.save(row, np.zeros(4, np.float32))
    for inputs, count in (('test', 10), ('val/clean', 3), (row, 1)):
        assert len(runnerkit.predict(file, inputs, trust=True)) == count
    del cfg.data['test']  # then files are read by the first data set of val
    save(cfg)
    assert len(runnerkit.predict(file, row, trust=True)) == 1


def test_one_of_several_data_sets_by_name(cfg):
    broken = dict(type='Rows', lenght=1)
    cfg.data.val = dict(clean=dict(type='Rows'), noisy=dict(type='Rows', noise=1.0), broken=broken)
    cfg.data.val['empty'] = dict(type='Rows', length=0)
    assert torch.allclose(torch.stack(runnerkit.predict(cfg, 'val/clean')), expected(cfg))
    assert not torch.allclose(torch.stack(runnerkit.predict(cfg, 'val/noisy')), expected(cfg))
    for inputs, error, text in (
        ('val', ValueError, 'data.val has several data sets by name: name one of them, val/clean or val/noisy or'),
        (
            'val/claen',
            FileNotFoundError,
            r"\(test, noisy, val/clean, val/noisy, val/broken, val/empty\); did you mean 'val/clean'",
        ),
        ('val/broken', TypeError, "'lenght'"),
        ('val/empty', ValueError, 'no samples|is empty'),
    ):
        with pytest.raises(error, match=text):
            runnerkit.predict(cfg, inputs)


def test_the_samples_are_the_same_each_time_and_the_process_stays_as_it_was(cfg):
    threads, state = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    cfg.num_threads = threads + 1
    first, again = (torch.stack(runnerkit.predict(cfg, 'noisy')) for _ in range(2))
    assert torch.equal(first, again)
    assert not torch.allclose(first, expected(cfg))
    assert (torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()) == (threads, state)


def test_apply(cfg):
    raw = torch.stack(runnerkit.predict(cfg))
    for name, wanted in (('argmax', raw.argmax(1)), ('softmax', raw.softmax(1)), ('sigmoid', raw.sigmoid())):
        assert torch.allclose(torch.stack(runnerkit.predict(cfg, apply=name)), wanted)
    assert torch.equal(torch.stack(runnerkit.predict(cfg, apply=lambda batch: batch > 0)), raw > 0)


def test_models_in_the_style_of_mmcv(cfg):
    use(cfg, 'Old')
    cfg.data.test.type = 'OldRows'
    cfg.data.test_dataloader.collate_fn = partial(collate, samples_per_gpu=4)
    found = runnerkit.predict(cfg)
    weight, bias = (torch.load(f'{cfg.work_dir}/latest.pth')['state_dict'][name] for name in ('weight', 'bias'))
    sums = [(torch.full((4,), i / 10) @ weight.T + bias).sum() for i in range(10)]
    assert torch.allclose(torch.stack([each['sum'] for each in found]), torch.stack(sums))


FORMS = {
    'tensor': (lambda out: out, lambda row: row),
    'numbers': (lambda out: out[:, 0], lambda row: row[0]),
    'list': (lambda out: [[row] for row in out], lambda row: [row]),
    'array': (lambda out: out.numpy(), lambda row: row),
    'tuple': (lambda out: (out, out[:, 0]), lambda row: (row, row[0])),
    'dict': (lambda out: {'a': out, 'b': (out, list(out))}, lambda row: {'a': row, 'b': (row, row)}),
}


@pytest.mark.parametrize('answer, wanted', FORMS.values(), ids=FORMS)
def test_each_form_that_a_prediction_may_have(cfg, monkeypatch, answer, wanted):
    monkeypatch.setattr(Own, 'answer', staticmethod(answer))
    found = runnerkit.predict(use(cfg, 'Own'))
    assert len(found) == 10
    torch.testing.assert_close(plain(found), plain([wanted(row) for row in expected(cfg)]))


def plain(value):
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return torch.as_tensor(value)


def test_the_bar_is_drawn_on_a_terminal_only(cfg, monkeypatch):
    for is_there, drawn in ((True, '10/10'), (False, '')):
        stream = io.StringIO()
        monkeypatch.setattr(sys, 'stderr', stream)
        monkeypatch.setattr(prediction, 'is_terminal', lambda: is_there)
        runnerkit.predict(cfg)
        assert stream.getvalue().count(drawn) if drawn else stream.getvalue() == ''


@pytest.mark.skipif(not torch.cuda.is_available(), reason='needs a GPU')
def test_on_a_gpu(cfg):
    there, here = (torch.stack(runnerkit.predict(cfg, device=device)) for device in (None, 'cpu'))
    assert there.device.type == 'cpu'
    assert torch.allclose(there, here, atol=1e-5)


def test_errors_say_what_to_do(cfg, tmp_path, monkeypatch):
    (tmp_path / 'a.npy').touch()
    for inputs, text in (
        ([tmp_path / 'b.npy'], r"b.npy is neither a file nor a split of .* \(test, noisy\); did you mean 'a.npy'"),
        ('tset', r"did you mean 'test'\?"),
        (['test', 'noisy'], 'test is neither a file nor'),
        ('test_dataloader', r'neither a file nor a split'),
    ):
        with pytest.raises(FileNotFoundError, match=text):
            runnerkit.predict(cfg, inputs)
    with pytest.raises(ValueError, match='there is nothing to predict: name files, or one of the splits test, noisy'):
        runnerkit.predict(cfg, [])
    with pytest.raises(
        ValueError, match="apply must be a function, its name .* or one of .* but got 'argmx'; did you mean 'argmax'"
    ):
        runnerkit.predict(cfg, apply='argmx')
    with pytest.raises(ValueError, match='apply must be a function, .* but got 3$'):
        runnerkit.predict(cfg, apply=3)
    for inputs in (None, 3, torch.ones(2, 4), [np.ones(4)]):
        with pytest.raises(
            TypeError, match=r'inputs must be the name of a split, or paths of files, .*load_model\(…\)'
        ):
            runnerkit.predict(cfg, inputs)
    with pytest.raises(PreflightError, match='tf32: must be True or False'):
        runnerkit.predict(Config({**cfg._cfg_dict, 'tf32': 'yes'}))
    with pytest.raises(TypeError, match='seed must be a whole number'):
        runnerkit.predict(Config({**cfg._cfg_dict, 'seed': 'one'}))
    with pytest.raises(ValueError, match='samples_per_gpu must be'):
        runnerkit.predict(cfg, batch_size=0)
    with pytest.raises(TypeError, match='Silent has no method predict.*let Supervised train the network'):
        runnerkit.predict(use(cfg, 'Silent'))
    use(cfg, 'Own')
    for answer, error, text in (
        (lambda out: out.sum(0), ValueError, 'Own has returned 9 predictions for 10 samples: its predict must'),
        (lambda out: {'a': out, 'loss': out.sum()}, ValueError, r'are for \[1, 4\] samples: predict must'),
        (lambda out: None, TypeError, r'must be a tensor \[n, …\], a list .* but got a NoneType'),
    ):
        monkeypatch.setattr(Own, 'answer', staticmethod(answer))
        with pytest.raises(error, match=text):
            runnerkit.predict(cfg)
    for answer, what in ((lambda out: out[:, 0], r'the shape \(4,\)'), (lambda out: [*out], 'the type list')):
        monkeypatch.setattr(Own, 'answer', staticmethod(answer))
        with pytest.raises(TypeError, match=f"apply='argmax' needs one tensor .* have {what}"):
            runnerkit.predict(cfg, apply='argmax')
    del cfg.data['test']
    with pytest.raises(KeyError, match='has no test and no val and no train, so it is unknown how to read files'):
        runnerkit.predict(cfg, tmp_path / 'a.npy')
