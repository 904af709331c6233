"""Loggers: where lines go, who writes them, and what happens when they cannot be written."""

import io
import logging
import os
import pty
import re
import subprocess
import sys
import warnings
from functools import lru_cache

import pytest
from forks import shown_on

import runnerkit.utils.logging
from runnerkit.utils.logging import (
    DETAIL,
    close_log_file,
    close_logger,
    console,
    get_logger,
    harmless,
    harmless_warnings,
    is_terminal,
    logger_initialized,
    print_err,
    print_log,
    print_out,
    print_result,
    printable,
    set_verbose,
    shortened,
)


@pytest.fixture
def name(request):
    name = f'test_{request.node.name}'
    yield name
    close_logger(name)


def test_lines_go_to_console_and_file_in_one_format(name, tmp_path, capsys):
    path = tmp_path / 'run.log'
    logger = get_logger(name, path)
    logger.info('hello %d', 3)
    logger.debug('unheard')
    line = capsys.readouterr().err
    assert line.endswith(f' - {name} - INFO - hello 3\n')
    assert path.read_text() == line


def test_asked_again_it_is_the_same_with_no_second_handler(name, tmp_path):
    logger = get_logger(name, tmp_path / 'a.log', logging.WARNING)
    handlers = list(logger.handlers)
    assert get_logger(name, log_level=logging.DEBUG) is logger
    assert get_logger(name, str(tmp_path / 'a.log')) is logger
    assert logger.handlers == handlers
    assert logger.level == logging.WARNING


@pytest.mark.parametrize('level, number', [(logging.INFO, 20), ('WARNING', 30)])
def test_handlers_have_the_level_too(name, tmp_path, level, number):
    logger = get_logger(name, tmp_path / 'run.log', level)
    assert [handler.level for handler in logger.handlers] == [number, number]
    assert isinstance(logger.handlers[0], logging.StreamHandler)
    assert isinstance(logger.handlers[1], logging.FileHandler)
    assert logger.level == number


def test_a_file_can_be_added_later(name, tmp_path):
    logger = get_logger(name, log_level=logging.WARNING)
    get_logger(name, tmp_path / 'late.log', logging.DEBUG)
    logger.debug('seen')
    assert 'seen' in (tmp_path / 'late.log').read_text()


def test_file_modes(name, tmp_path):
    path = tmp_path / 'run.log'
    for mode, lines in (('w', 1), ('a', 2), ('w', 1)):
        get_logger(name, path, file_mode=mode).info('line')
        close_logger(name)
        assert len(path.read_text().splitlines()) == lines


def test_children_go_where_their_parent_goes(name, tmp_path, capsys):
    get_logger(name, tmp_path / 'run.log')
    child = get_logger(f'{name}.part')
    assert child.handlers == []
    assert f'{name}.part' not in logger_initialized
    child.info('from below')
    assert (tmp_path / 'run.log').read_text().count('from below') == 1
    assert capsys.readouterr().err.count('from below') == 1
    stranger = get_logger(f'{name}ish')
    assert stranger.handlers != []
    close_logger(f'{name}ish')


def test_other_ranks_write_errors_only_and_no_file(name, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv('RANK', '1')
    logger = get_logger(name, tmp_path / 'run.log')
    logger.info('hidden')
    logger.error('shown')
    assert not (tmp_path / 'run.log').exists()
    err = capsys.readouterr().err
    assert 'shown' in err
    assert 'hidden' not in err


def test_closing_forgets_it(name, tmp_path):
    logger = get_logger(name, tmp_path / 'run.log')
    foreign = logging.NullHandler()
    logger.addHandler(foreign)
    close_logger(name)
    assert logger.handlers == [foreign]
    assert name not in logger_initialized
    os.remove(tmp_path / 'run.log')
    get_logger(name, tmp_path / 'run.log').info('anew')
    assert 'anew' in (tmp_path / 'run.log').read_text()
    logger.removeHandler(foreign)


@pytest.mark.skipif(not os.path.exists('/dev/full'), reason='needs a device that is always full')
def test_a_line_that_cannot_be_written_warns_once(name):
    logger = get_logger(name, '/dev/full')
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter('always')
        logger.info('lost')
        logger.info('lost too')
        close_logger(name)
    assert [str(each.message).split(' (')[0] for each in caught] == ['the log file /dev/full cannot be written']


@pytest.mark.skipif(not os.path.exists('/dev/full'), reason='needs a device that is always full')
def test_a_file_that_cannot_be_closed_warns(name):
    logger = get_logger(name, '/dev/full')
    logger.handlers[1].stream.write('pending')
    with pytest.warns(RuntimeWarning, match='cannot be written'):
        close_logger(name)


def test_a_mistaken_message_is_reported_as_logging_does(name, capsys):
    logger = get_logger(name)
    logger.propagate = False  # pytest's own handler would raise
    logger.info('%d', 'no number')
    assert 'Logging error' in capsys.readouterr().err


def test_a_closed_pipe_does_not_end_the_program():
    code = (
        'from runnerkit.utils.logging import get_logger\n'
        'log = get_logger("x")\n'
        'for i in range(5): log.info("line")\n'
        'print("done")'
    )
    reader, writer = os.pipe()
    os.close(reader)
    ended = subprocess.run([sys.executable, '-c', code], stdout=subprocess.PIPE, stderr=writer, text=True)
    os.close(writer)
    assert ended.stdout == 'done\n'


def test_a_users_own_root_console_does_not_say_it_twice(tmp_path):
    code = (
        'import logging\n'
        'logging.basicConfig(level=logging.INFO)\n'
        'from runnerkit.utils.logging import get_logger\n'
        'get_logger("ours").info("once")\n'
        'get_logger("ours.child").info("once")\n'
        'logging.getLogger("theirs").info("theirs")\n'
    )
    err = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True).stderr
    assert err.count('once') == 2
    assert err.count('theirs\n') == 1


def on_a_terminal(code):
    """What ``code`` writes to stderr, if that is a terminal."""
    master, slave = pty.openpty()
    process = subprocess.Popen([sys.executable, '-c', code], stderr=slave, env={**os.environ, 'TERM': 'xterm'})
    os.close(slave)
    seen = shown_on(master)
    assert process.wait() == 0, seen
    return seen


def test_on_a_terminal_long_lines_are_not_broken_and_markup_is_left_alone():
    seen = on_a_terminal(
        'from runnerkit.utils.logging import get_logger, is_terminal\n'
        'assert is_terminal()\n'
        'get_logger("x").warning("[bold]" + "a" * 300)\n'
        'get_logger("x").info("%d", "no number")\n'
    )
    assert b'[bold]' + b'a' * 300 in seen
    assert b'\x1b[' in seen
    assert b'Logging error' in seen


def test_a_terminal_may_appear_later(name, monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    logger = get_logger(name)
    logger.propagate = False
    monkeypatch.setattr(sys, 'stderr', Terminal())
    monkeypatch.setenv('TERM', 'xterm')
    monkeypatch.delenv('NO_COLOR', raising=False)
    # rich chooses the colours when its console is made: that of an earlier test may have none.
    monkeypatch.setattr(runnerkit.utils.logging, 'console', lru_cache(console.__wrapped__))
    logger.error('red')
    logger.info('plain')
    logger.info('%d', 'no number')
    assert re.search(r'\x1b\[1;31m\d\d:\d\d:\d\d ERROR red', sys.stderr.getvalue())
    assert re.search(r'^\d\d:\d\d:\d\d plain$', sys.stderr.getvalue(), flags=re.MULTILINE)
    assert 'Logging error' in sys.stderr.getvalue()


def test_a_worker_process_writes_plain_lines_also_on_a_terminal():
    seen = on_a_terminal(
        'import multiprocessing as mp\n'
        'from runnerkit.utils.logging import get_logger\n'
        'work = mp.get_context("fork").Process(target=lambda: get_logger("x").warning("from the worker"))\n'
        'work.start()\n'
        'work.join()\n'
    )
    assert b'WARNING - from the worker' in seen
    assert b'\x1b[' not in seen


def test_a_pipe_is_no_terminal_and_the_console_is_one(capsys):
    assert not is_terminal()
    assert console() is console()


def test_print_log(name, tmp_path, capsys):
    print_log('to stdout')
    print_log('nowhere', 'silent')
    print_log('by name', name)
    print_log('by object', logging.getLogger(name), logging.WARNING)
    captured = capsys.readouterr()
    assert captured.out == 'to stdout\n'
    assert [line.split(' - ')[2:] for line in captured.err.splitlines()] == [
        ['INFO', 'by name'],
        ['WARNING', 'by object'],
    ]
    with pytest.raises(TypeError, match='logger should be either a logging.Logger object'):
        print_log('x', 3)


def test_nothing_heavy_is_imported():
    code = 'import sys, runnerkit.utils.logging; print([m for m in ("torch", "numpy", "rich") if m in sys.modules])'
    assert subprocess.run([sys.executable, '-c', code], capture_output=True, text=True).stdout == '[]\n'


@pytest.mark.parametrize(
    'text, shown',
    [
        ('Grüße, 你好 1.5', 'Grüße, 你好 1.5'),
        ('a\nb\rc\td', r'a\nb\rc\td'),
        ('\x1b[2J\x9b1m\0\x7f', r'\x1b[2J\x9b1m\x00\x7f'),
        ('\u202e\u2066\u200b\u2028\ufeff', r'\u202e\u2066\u200b\u2028\ufeff'),
        ('\ud800\U000e0001', r'\ud800\U000e0001'),
        ('a' * 1001, 'a' * 1000 + '… (1001 characters)'),
        (KeyError('x'), "'x'"),
    ],
)
def test_text_of_others_stays_on_its_line(text, shown):
    assert printable(text) == shown
    assert printable(text).isprintable()


def test_long_lists_are_shortened():
    assert shortened(['a', 'b\n', 'c'], 2) == r'a, b\n … (3 in all)'
    assert shortened(['a'], 2) == 'a'


def test_details_are_always_in_the_file_and_on_the_console_if_that_is_verbose(name, tmp_path, capsys):
    logger = get_logger(name, tmp_path / 'run.log')
    logger.info('shown', extra=DETAIL)  # as every line, unless somebody chooses otherwise
    set_verbose(logger, False)
    logger.info('hidden', extra=DETAIL)
    logger.info('ordinary')
    set_verbose(logger, True)
    logger.info('shown again', extra=DETAIL)
    said = [line.rpartition(' - ')[2] for line in capsys.readouterr().err.splitlines()]
    assert said == ['shown', 'ordinary', 'shown again']
    assert [line.rpartition(' - ')[2] for line in (tmp_path / 'run.log').read_text().splitlines()] == [
        'shown',
        'hidden',
        'ordinary',
        'shown again',
    ]


def test_results_are_on_stdout_and_in_the_file(name, tmp_path, capsys):
    logger = get_logger(name, tmp_path / 'run.log')
    print_result('accuracy 0.98', logger)
    out, err = capsys.readouterr()
    assert (out, err) == ('accuracy 0.98\n', '')
    assert (tmp_path / 'run.log').read_text().endswith(' - INFO - accuracy 0.98\n')


def test_printing_survives_a_reader_that_has_gone_and_a_stream_that_lacks_a_character():
    code = (
        'import sys\n'
        'from runnerkit.utils.logging import print_out\n'
        'print_out("1 … 2")\n'
        'sys.stdout = open(int(sys.argv[1]), "w")\n'
        'for i in range(3): print_out("lost")\n'
        'sys.stderr.write("done")'
    )
    reader, writer = os.pipe()
    os.close(reader)
    environment = {**os.environ, 'PYTHONIOENCODING': 'ascii'}
    command = [sys.executable, '-c', code, str(writer)]
    ended = subprocess.run(command, pass_fds=[writer], capture_output=True, text=True, env=environment)
    os.close(writer)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, '1 ? 2\n', 'done')


def test_a_log_file_can_be_closed_alone(tmp_path):
    logger = get_logger('closing', tmp_path / 'a.log')
    get_logger('closing', tmp_path / 'b.log')
    close_log_file(logger, tmp_path / 'a.log')
    logger.info('only b')
    assert (tmp_path / 'a.log').read_text() == ''
    assert 'only b' in (tmp_path / 'b.log').read_text()
    get_logger('closing', tmp_path / 'a.log', file_mode='a').info('both')
    assert 'both' in (tmp_path / 'a.log').read_text()
    close_logger('closing')


EVIL = 'a\tb\x1b[2J\x9b1m\r\x00\u202e\u2028\ud800\n\u3000你'
MADE_HARMLESS = 'a\tb\\x1b[2J\\x9b1m\\r\\x00\\u202e\\u2028\\ud800\n\u3000你'


def test_what_is_printed_and_logged_controls_nothing(name, tmp_path, capsys):
    assert harmless(EVIL) == MADE_HARMLESS
    logger = get_logger(name, tmp_path / 'run.log')
    logger.info('%s', EVIL)
    try:
        raise ValueError(EVIL)
    except ValueError:
        logger.exception('failed')
    print_out(EVIL)
    print_err(EVIL)
    print_log(EVIL)
    captured = capsys.readouterr()
    assert captured.out == f'{MADE_HARMLESS}\n' * 2
    for text in (captured.err, (tmp_path / 'run.log').read_text()):
        assert text.count(MADE_HARMLESS) >= 2
        assert 'Traceback (most recent call last):\n  File' in text
        assert harmless(text) == text


def test_a_line_in_a_message_is_no_record(name, tmp_path):
    logger = get_logger(name, tmp_path / 'run.log')
    logger.info('a\n2030-01-01 00:00:00,000 - x - INFO - Run completed\n12:34:56 told\nrest: 12:34:56')
    lines = (tmp_path / 'run.log').read_text().splitlines()
    assert lines[1:] == [' 2030-01-01 00:00:00,000 - x - INFO - Run completed', ' 12:34:56 told', 'rest: 12:34:56']


def test_warnings_control_nothing():
    with harmless_warnings():
        assert r'\x1b[2J' in warnings.formatwarning('\x1b[2J', UserWarning, 'x.py', 1)
    assert '\x1b[2J' in warnings.formatwarning('\x1b[2J', UserWarning, 'x.py', 1)
