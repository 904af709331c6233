"""The exporting tool."""

import shutil
import subprocess
import sys

import numpy as np
import pytest
import torch

import runnerkit
from runnerkit.cli.export import FORMATS, main
from runnerkit.flow.use import export


@pytest.fixture
def trained(project, train):
    assert train('--cfg-options', 'runner.max_epochs=1', '--device', 'cpu')[0] == 0
    return project


@pytest.fixture
def said(capsys):
    def call(*words):
        try:
            code = main([*map(str, words)])
        except SystemExit as ended:
            code = ended.code
        printed = capsys.readouterr()
        return code, (printed.err if code else printed.out).strip()

    return call


def test_the_formats_are_those_that_are_written():
    assert tuple(export.FORMATS) == FORMATS


def test_each_format_computes_what_predict_says(trained, said):
    import onnxruntime

    run, wanted = trained / 'run', np.stack(runnerkit.predict(trained / 'run', 'test'))
    samples = torch.stack([sample[0] for sample in samples_of(trained)])
    for extension in FORMATS:
        code, text = said(run, '--out', trained / f'x{extension}')
        assert code == 0
        assert 'the network of Supervised (Sequential), with the weights of' in text
        assert 'inputs: input float32 [batch, 4]; outputs: output float32 [batch, 1]' in text
    session = onnxruntime.InferenceSession(trained / 'x.onnx')
    assert np.allclose(session.run(None, {'input': samples.numpy()})[0], wanted, atol=1e-5)
    assert np.allclose(torch.export.load(trained / 'x.pt2').module()(samples).detach(), wanted, atol=1e-5)


def samples_of(project):
    """What `predict` sees: noise and all."""
    found = []
    runnerkit.predict(project / 'run', 'test', apply=lambda batch: batch, batch_size=1)
    from runnerkit.config import Config
    from runnerkit.flow.use.predict import loader_of

    for batch in loader_of(Config.fromfile(project / 'cfg.py'), 'test', 1):
        found.append((batch[0][0],))
    return found


def test_each_source_and_the_options(trained, said):
    run, out = trained / 'run', trained / 'x.pt2'
    for words in (
        [trained / 'cfg.py', '--checkpoint', run],
        [trained / 'cfg.py', '--cfg-options', f'work_dir={run}', '--which', 'latest'],
        [run, '--cfg-options', 'data.test.length=1', '--inputs', 'test'],
        [run, '--shape', '4', '--tolerance', '1e-3'],
        [run / 'epoch_1.pth'],
    ):
        code, text = said(*words, '--out', out)
        assert code == 0, text
        assert torch.export.load(out).module()(torch.zeros(5, 4)).shape == (5, 1)
        out.unlink()


def test_pickles_are_loaded_only_if_they_are_trusted(trained, said):
    path = trained / 'run' / 'epoch_1.pth'
    torch.save({**torch.load(path), 'helper': Helper()}, path)
    words = (trained / 'cfg.py', '--checkpoint', path, '--shape', '4', '--out', trained / 'x.pt2')
    assert '--trust-pickles' in said(*words)[1]
    assert said(*words, '--trust-pickles')[0] == 0


class Helper:
    """An object that only an unrestricted pickle can hold."""


def test_wrong_usage(trained, said):
    run = trained / 'run'
    for words, number, text in (
        (
            [run, '--out', 'x.onx'],
            2,
            "--out x.onx: a model is exported as .pt2, .onnx; did you mean '.onnx'",
        ),
        ([run, '--out', 'nowhere/x.pt2'], 2, 'no such folder: nowhere'),
        ([run], 2, '--out'),
        ([run, '--out', 'x.pt2', '--shape', '1,x'], 2, "such as 1,28,28 (without the batch), but got '1,x'"),
        ([run, '--out', 'x.pt2', '--tolerance', 'big'], 2, "must be a number of at least 0, but got 'big'"),
        ([run, '--out', 'x.pt2', '--shape', '4', '--inputs', 'test'], 2, 'give one of them'),
        ([run, '--out', 'x.pt2', '--inputs', 'tset'], 2, "did you mean 'test'"),
    ):
        code, error = said(*words)
        assert (code, text in error) == (number, True), error


@pytest.mark.thorough  # the same of test_predict.py
def test_a_copied_work_dir_exports_when_the_project_is_gone(trained, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp('elsewhere')
    shutil.move(trained / 'run', elsewhere / 'run')
    shutil.rmtree(trained)
    done = subprocess.run(
        [sys.executable, '-m', 'runnerkit', 'export', 'run', '--out', 'x.onnx'],
        cwd=elsewhere,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ''  # torch's exporter says much about itself
    assert (elsewhere / 'x.onnx').stat().st_size > 0
