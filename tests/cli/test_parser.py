"""Flags of other tools, and settings in the wrong place."""

import re

import pytest

from runnerkit.cli import look, main, print_config, test, train
from runnerkit.cli.errors import FLAGS
from runnerkit.cli.parser import Parser
from runnerkit.config.known_keys import TOP


def refused(capsys, words, parser=train.main.parser):
    """The last line of what the parser says before it ends the program."""
    with pytest.raises(SystemExit) as end:
        parser().parse_args(words)
    assert end.value.code == 2
    return capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize(
    'words, text',
    [
        (['cfg.py', '--epochs', '5'], 'unknown flag --epochs: use --cfg-options runner.max_epochs=5'),
        (['cfg.py', '--epochs=5'], '--cfg-options runner.max_epochs=5'),
        (['--max_epochs', '5', 'cfg.py'], '--cfg-options runner.max_epochs=5'),
        (['--lr', '0.1', 'cfg.py'], '--cfg-options optimizer.lr=0.1'),
        (['cfg.py', '--lr', '--seed', '3'], '--cfg-options optimizer.lr=…'),
        (['cfg.py', '--batch-size', '8'], '--cfg-options data.batch_size=8'),
        (['cfg.py', '--workers', '2'], '--cfg-options data.workers=2'),
        (['cfg.py', '--num-gpus', '2'], 'torchrun --nproc_per_node 2 … --launcher pytorch'),
        (['cfg.py', '--resume'], '--auto-resume'),
        (['--config', 'cfg.py'], 'the config is the first argument, without a flag'),
        (['-c', 'cfg.py'], 'the config is the first argument, without a flag'),
        (['cfg.py', '--optimizer.lr', '5'], 'use --cfg-options optimizer.lr=5'),
        (['cfg.py', '--no-val'], "did you mean '--no-validate'?"),
        (['cfg.py', '--wrk-dir', 'x'], "unknown flag --wrk-dir; did you mean '--work-dir'?"),
        (['cfg.py', '--work', 'x'], "unknown flag --work; did you mean '--work-dir'?"),  # no guesses
        (['cfg.py', 'epochs=5'], '--cfg-options runner.max_epochs=5'),
        (['cfg.py', '--dry-run', 'optimizer.lr=1'], 'to set a key of the config: --cfg-options opt'),
        (['cfg.py', '--cfg-options', 'a=1', '--seed', '3', 'b=2'], '--cfg-options b=2'),
        (['cfg.py', '--options', 'a.b=1'], ': use --cfg-options a.b=1'),
        (['--zzzz'], 'unknown flag --zzzz'),
        ([], 'the following arguments are required: config'),
    ],
)
def test_the_message_says_what_to_write(capsys, words, text):
    assert text in refused(capsys, words)


def test_a_hint_names_only_flags_of_its_tool(capsys):
    assert 'runner.max_epochs=5' in refused(capsys, ['cfg.py', 'x.pth', '--epochs', '5'], test.main.parser)
    assert 'evaluation.metric=bbox' in refused(capsys, ['cfg.py', 'x.pth', '--eval', 'bbox'], test.main.parser)
    assert refused(capsys, ['cfg.py', 'x.pth', '--resume'], test.main.parser).endswith('unknown flag --resume')
    assert '--work-dir' not in refused(capsys, ['cfg.py', '--output-dir', 'x'], look.summary_main.parser)


def test_hints_name_settings_of_a_config_and_flags_that_we_lack():
    own = {flag for action in train.main.parser().arguments for flag in action.option_strings}
    assert not own & {f'--{name}' for name in FLAGS}
    named = [setting for hint in FLAGS.values() for setting in re.findall(r'(\w[\w.]*)=', hint)]
    assert {name.split('.')[0] for name in named} <= {*TOP}


def test_every_parser_is_one_of_ours():
    for command in main.COMMANDS:
        parse = main.command_named(command).parser()
        assert isinstance(parse, Parser)
        assert parse.prog == f'runnerkit {command}'


def test_what_is_right_passes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / 'lr=1.py').write_text('')
    args = train.main.parser().parse_args(
        ['lr=1.py', '--work-dir', 'lr=1', '--cfg-options', 'a=1', 'b.c=[2,3]', '--seed', '3', '--local_rank=1']
    )
    assert (args.config, args.work_dir, args.cfg_options) == ('lr=1.py', 'lr=1', {'a': 1, 'b.c': [2, 3]})
    assert (args.seed, args.local_rank) == (3, 1)
    assert print_config.main.parser().parse_args(['--', '--epochs']).config == '--epochs'
