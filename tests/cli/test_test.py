"""The testing tool."""

import json

import pytest

from runnerkit.cli.test import main


def test_scores_of_a_file_or_of_the_best_in_a_work_dir(project, train, capsys):
    train()
    out = project / 'scores.json'
    best = next((project / 'run').glob('best_*'))
    printed = []
    for checkpoint in (project / 'run', best):
        assert main([str(project / 'cfg.py'), str(checkpoint), '--out', str(out)]) == 0
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1]
    assert 'test loss: ' in printed[0]
    assert 'test error: ' in printed[0]
    assert set(json.loads(out.read_text())) == {'loss', 'error'}
    assert main([str(project / 'cfg.py'), str(best), '--split', 'val']) == 0
    assert 'val error: ' in capsys.readouterr().out
    assert main([str(project / 'run')]) == 0  # whose config is in it
    assert capsys.readouterr().out == printed[0]
    assert main([str(project / 'run'), str(best)]) == 0
    assert capsys.readouterr().out == printed[0]


def test_a_work_dir_that_was_not_made_here_needs_trust(project, train, capsys):
    """Its config would be executed; that of a config that is named is the user's own affair."""
    train()
    config = project / 'run' / 'cfg.py'
    config.write_text(f'{config.read_text()}\nprint("executed")\n')
    capsys.readouterr()
    assert main([str(project / 'run')]) == 2
    printed = capsys.readouterr()
    assert 'executed' not in printed.out
    assert '--trust' in printed.err
    assert main([str(project / 'run'), '--trust']) == 0
    assert 'executed' in capsys.readouterr().out


def test_a_work_dir_that_was_moved_and_has_no_test_split(project, train, capsys):
    config = project / 'cfg.py'
    config.write_text(config.read_text().replace('    test=dict(type=dataset, length=6),\n', ''))
    train('--cfg-options', 'runner.max_epochs=1')
    (project / 'run').rename(project / 'moved')
    moved, out = str(project / 'moved'), project / 'scores.json'
    assert main([moved]) == 2
    refused = "data has no 'test' section; it has train, val (use --split val)"
    assert refused in capsys.readouterr().err
    assert main([moved, '--split', 'val', '--out', str(out)]) == 0
    printed = dict(line.split(': ') for line in capsys.readouterr().out.splitlines())
    assert printed == {f'val {name}': f'{score:.4f}' for name, score in json.loads(out.read_text()).items()}


def test_a_config_alone_is_about_its_work_dir(project, train, capsys):
    train(work_dir='own')
    config = project / 'cfg.py'
    config.write_text(f'{config.read_text()}\nwork_dir = {str(project / "own")!r}\n')
    assert main([str(config)]) == 0
    assert 'test error: ' in capsys.readouterr().out


@pytest.mark.parametrize(
    'arguments, code, text',
    [
        (['nowhere.py', 'x.pth'], 2, 'no such config file: nowhere.py'),
        (['nowhere'], 2, 'nowhere is neither a config nor a work dir: give the config first, runnerkit test CONFIG '),
        (['EMPTY'], 2, 'is a work dir without its config: give the config first, runnerkit test CONFIG /'),
        (['CFG'], 2, 'no checkpoint'),
        (['CFG', 'nowhere.pth'], 2, 'no checkpoint nowhere.pth'),
        (['CFG', 'CFG', '--split', 'tset'], 2, "has no 'tset' section; it has train, val, test; did you mean 'test'?"),
    ],
)
def test_wrong_input(project, capsys, arguments, code, text):
    (project / 'empty').mkdir()
    places = {'CFG': str(project / 'cfg.py'), 'EMPTY': str(project / 'empty')}
    assert main([places.get(each, each) for each in arguments]) == code
    err = capsys.readouterr().err
    assert text in err
    assert 'Traceback' not in err


def test_weights_that_do_not_fit_are_refused(project, train, capsys):
    """Of another width, and with a layer more than the checkpoint: exit code 1 before anything is evaluated."""
    train('--cfg-options', 'runner.max_epochs=1')
    run = str(project / 'run')
    text = (project / 'cfg.py').read_text()
    wide = text.replace('out_features=8', 'out_features=9').replace('in_features=8', 'in_features=9')
    (project / 'wide.py').write_text(wide)
    more = "dict(type='Linear', in_features=1, out_features=1),\n    ],"
    (project / 'more.py').write_text(text.replace('    ],', more, 1))
    capsys.readouterr()
    for config, parts in {
        'wide.py': ('loaded 1 of 4 tensors (3 of another shape) of', 'size mismatch for model.0.weight'),
        'more.py': ('loaded 4 of 6 tensors (2 missing) of', 'missing keys in source state_dict: model.3.weight'),
    }.items():
        assert main([str(project / config), run]) == 1
        printed = capsys.readouterr()
        last = printed.err.strip().splitlines()[-1]
        for part in (f'best_error_epoch_1.pth does not fit the model of {project / config}', *parts, '--allow-partial'):
            assert part in last
        assert 'test error' not in printed.out
        assert main([str(project / config), run, '--allow-partial']) == 0
        printed = capsys.readouterr()
        assert 'test error: ' in printed.out
        assert parts[0] in printed.err
    # What the model lacks is a difference, too.
    (project / 'less.py').write_text(text.replace("        dict(type='Linear', in_features=8, out_features=1),\n", ''))
    assert main([str(project / 'less.py'), run, '--split', 'train']) == 1
    assert 'loaded 2 of 2 tensors (2 unexpected) of' in capsys.readouterr().err


def test_the_checkpoint_is_looked_for_before_the_data_are_built(project, train, capsys):
    train('--cfg-options', 'runner.max_epochs=1')
    (project / 'points.py').write_text('raise RuntimeError("read")\n')
    assert main([str(project / 'cfg.py'), str(project / 'run' / 'epoch_2.pth')]) == 2
    assert "cannot be found; did you mean 'epoch_1.pth'" in capsys.readouterr().err


def test_a_config_that_lacks_an_object(project, train, capsys):
    """As the work dir of a run from Python has it."""
    train('--cfg-options', 'runner.max_epochs=1')
    lacking = (project / 'cfg.py').read_text() + "\nmodel['loss'] = '<object> MSELoss()'\n"
    (project / 'lacking.py').write_text(lacking)
    assert main([str(project / 'lacking.py'), str(project / 'run')]) == 1
    assert 'cannot hold: model.loss (MSELoss())' in capsys.readouterr().err
