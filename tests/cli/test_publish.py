"""The publishing tool."""

import re

import pytest
import torch

import runnerkit
from runnerkit.cli.publish import main


def test_a_work_dir_is_published(project, train, capsys):
    assert train('--cfg-options', 'runner.max_epochs=1', '--device', 'cpu')[0] == 0
    latest = torch.load(project / 'run' / 'epoch_1.pth')
    latest['state_dict']['model.0.bias'].fill_(7)
    torch.save(latest, project / 'run' / 'epoch_1.pth')
    for which, is_seven in (('best', False), ('latest', True)):
        assert main([str(project / 'run'), str(project / 'net.pth'), '--which', which]) == 0
        path, size = re.fullmatch(r'(.*net-[0-9a-f]{8}\.pth) \(([\d,]+) bytes\)\n', capsys.readouterr().out).groups()
        model = runnerkit.load_model(path, project / 'cfg.py')
        assert bool(model.model[0].bias.eq(7).all()) == is_seven
        assert int(size.replace(',', '')) < (project / 'run' / 'epoch_1.pth').stat().st_size
    # what hands on a file need not be able to resume
    code, said, error = train('--resume-from', path)
    assert code == 1
    assert 'cannot be resumed' in error


class Helper:
    """An object that only an unrestricted pickle can hold."""


def test_wrong_usage(tmp_path, capsys):
    file = tmp_path / 'a.pth'
    torch.save({'state_dict': torch.nn.Linear(2, 2).state_dict(), 'helper': Helper()}, file)
    for words, code, text in (
        ([file, 'nowhere/x.pth'], 2, 'OUT nowhere/x.pth: no such folder: nowhere'),
        ([file, tmp_path], 2, 'is a folder: give a file in it'),
        ([file, tmp_path / 'x.onnx'], 2, 'runnerkit export … --out x.onnx'),
        ([file, tmp_path / 'x.pth'], 1, '--trust-pickles'),
    ):
        assert main([*map(str, words)]) == code
        assert text in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main([str(file)])
    assert main([str(file), str(tmp_path / 'x.pth'), '--trust-pickles']) == 0
    assert len(list(tmp_path.glob('x-*.pth'))) == 1
