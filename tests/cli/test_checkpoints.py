"""The converting tool, and that every tool takes the folder that it makes; the publishing tool."""

import json
import re
import shutil

import pytest
import torch

import runnerkit
from runnerkit.cli.checkpoints import convert_main, publish_main
from runnerkit.cli.predict import main as predict
from runnerkit.cli.test import main as evaluate


def test_every_tool_takes_a_folder(project, train, capsys):
    """A run whose checkpoints are folders goes on, is evaluated and used as one whose checkpoints are files."""
    assert train('--device', 'cpu')[0] == 0
    run, whole = project / 'run', project / 'whole'
    shutil.move(run, whole)
    assert train('--cfg-options', 'runner.max_epochs=2', '--device', 'cpu')[0] == 0
    for path in [path for path in run.glob('*.pth') if not path.is_symlink()]:
        shutil.move(path, project / 'file.pth')
        assert convert_main([str(project / 'file.pth'), str(path)]) == 0
        assert path.is_dir()
    assert 'epoch_2.pth: a sharded checkpoint' in capsys.readouterr().out
    [best] = run.glob('best_*.pth')

    code, said, _ = train('--auto-resume', '--device', 'cpu')
    assert (code, 'resumed from' in said) == (0, True)
    ours, theirs = (torch.load(folder / 'epoch_3.pth') for folder in (run, whole))
    for name, value in theirs['state_dict'].items():
        assert torch.equal(ours['state_dict'][name], value)
    assert [len(list(folder.glob('best_*.pth'))) for folder in (run, whole)] == [1, 1]  # the former one is deleted

    config, out, answers = str(project / 'cfg.py'), project / 'out.json', []
    for path in (run / 'epoch_2.pth', whole / 'epoch_2.pth'):
        capsys.readouterr()
        model = runnerkit.load_model(path, config)
        answers.append(model.state_dict()['model.0.weight'].tolist())
        for command in (
            [evaluate, config, str(path), '--device', 'cpu'],
            [predict, config, 'test', '--checkpoint', str(path), '--device', 'cpu'],
        ):
            assert command[0]([*command[1:], '--out', str(out)]) == 0
            answers.append(json.loads(out.read_text()))
    assert answers[:3] == answers[3:]


def test_wrong_usage(tmp_path, capsys, monkeypatch):
    file = tmp_path / 'a.pth'
    torch.save({'meta': {}, 'state_dict': torch.nn.Linear(2, 2).state_dict()}, file)
    for words, code, text in (
        ([file, 'nowhere/x.pth'], 2, 'OUT nowhere/x.pth: no such folder: nowhere'),
        ([file, file], 2, 'exists: delete it'),
        ([file, tmp_path / 'x.onnx'], 2, 'runnerkit export … --out x.onnx'),
        ([tmp_path / 'b.pth', tmp_path / 'x.pth'], 2, 'no checkpoint'),
    ):
        assert convert_main([*map(str, words)]) == code
        assert text in capsys.readouterr().err
    with pytest.raises(SystemExit):
        convert_main([str(file)])
    monkeypatch.setenv('WORLD_SIZE', '2')
    assert convert_main([str(file), str(tmp_path / 'x.pth')]) == 2
    assert 'call it without torchrun' in capsys.readouterr().err


def test_a_work_dir_is_published(project, train, capsys):
    assert train('--cfg-options', 'runner.max_epochs=1', '--device', 'cpu')[0] == 0
    latest = torch.load(project / 'run' / 'epoch_1.pth')
    latest['state_dict']['model.0.bias'].fill_(7)
    torch.save(latest, project / 'run' / 'epoch_1.pth')
    for which, is_seven in (('best', False), ('latest', True)):
        assert publish_main([str(project / 'run'), str(project / 'net.pth'), '--which', which]) == 0
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


def test_wrong_usage_of_publish(tmp_path, capsys):
    file = tmp_path / 'a.pth'
    torch.save({'state_dict': torch.nn.Linear(2, 2).state_dict(), 'helper': Helper()}, file)
    for words, code, text in (
        ([file, 'nowhere/x.pth'], 2, 'OUT nowhere/x.pth: no such folder: nowhere'),
        ([file, tmp_path], 2, 'is a folder: give a file in it'),
        ([file, tmp_path / 'x.onnx'], 2, 'runnerkit export … --out x.onnx'),
        ([file, tmp_path / 'x.pth'], 1, '--trust-pickles'),
    ):
        assert publish_main([*map(str, words)]) == code
        assert text in capsys.readouterr().err
    with pytest.raises(SystemExit):
        publish_main([str(file)])
    assert publish_main([str(file), str(tmp_path / 'x.pth'), '--trust-pickles']) == 0
    assert len(list(tmp_path.glob('x-*.pth'))) == 1
