"""Records that somebody else has prepared: each text and each value of a real one replaced, and what the commands say.

`said` runs a command in this process and checks what it prints and logs.
"""

import contextlib
import io
import linecache
import os
import signal
import sys
import traceback
import unicodedata
import warnings

from runnerkit.cli import errors, main
from runnerkit.utils.logging import close_logger

#: A title, a cleared screen, a forged record, marks that reorder, and half a character.
TEXT = '\x1b]0;t\x07\x1b[2J\n2030-01-01 00:00:00,000 - runnerkit - INFO - Run completed\r\u202e\u2066\x9b1m\ud800'

#: What takes the place of each value in turn.
WRONG = {
    'a text': TEXT,
    'a long text': 'x' * 100_000,
    'nothing': None,
    'true': True,
    'a list': [{}, [None], TEXT],
    'an empty list': [],
    'a dict': {TEXT: {TEXT: TEXT}},
    'an empty dict': {},
    'a huge number': 10**400,
    'a negative number': -3,
    'NaN': float('nan'),
    'infinity': float('inf'),
    'deep': None,  # see below
}
for _ in range(300):
    WRONG['deep'] = [WRONG['deep']]


def places(value, path=(), most=2):
    """The path of each value in nested dicts and lists; of lists, only the first and the last entry."""
    if path:
        yield path
    if isinstance(value, dict):
        for key, each in value.items():
            yield from places(each, (*path, key), most)
    elif isinstance(value, (list, tuple)) and value:
        for i in sorted({0, len(value) - 1}):
            yield from places(value[i], (*path, i), most)


def replaced(value, path, new):
    """A copy of ``value`` with ``new`` at ``path``."""
    if not path:
        return new
    if isinstance(value, dict):
        return type(value)(
            {key: replaced(each, path[1:], new) if key == path[0] else each for key, each in value.items()}
        )
    return type(value)(replaced(each, path[1:], new) if i == path[0] else each for i, each in enumerate(value))


def renamed(value, path):
    """A copy of ``value`` in which the last key of ``path`` is `TEXT`; None if that is no key."""
    if len(path) > 1:
        inner = renamed(value[path[0]], path[1:])
        return None if inner is None else replaced(value, path[:1], inner)
    if not isinstance(value, dict) or not isinstance(path[0], str):
        return None
    return {path[0] + TEXT if key == path[0] else key: each for key, each in value.items()}


def poisoned(value):
    """A copy of ``value`` in which every text ends with `TEXT`, and every dict has entries with such keys."""
    if isinstance(value, str):
        return value + TEXT
    if isinstance(value, dict):
        more = {key + TEXT: poisoned(each) for key, each in list(value.items())[:2] if isinstance(key, str)}
        return {**{key: poisoned(each) for key, each in value.items()}, **more}
    return type(value)(map(poisoned, value)) if type(value) in (list, tuple) else value


def unsafe(text):
    """The characters in ``text`` that control a terminal, in their line."""
    return [
        ascii(line)
        for line in text.split('\n')
        if any(unicodedata.category(each) in ('Cc', 'Cf', 'Cs', 'Zl', 'Zp') and each != '\t' for each in line)
    ]


class Waits(BaseException):
    """A command takes too long."""


def _alarm(*_):
    raise Waits


def said(argv, seconds=60):
    """Run a command; returns its exit code, what it printed, and complaints about that."""
    found = []
    out, err = io.StringIO(), io.StringIO()
    caught = []
    text_of = errors.text_of

    def watched(error):
        caught.append(error)
        return text_of(error)

    errors.text_of = watched
    former = signal.signal(signal.SIGALRM, _alarm)
    signal.alarm(seconds)
    shown = warnings.showwarning
    code = None
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), warnings.catch_warnings():
            warnings.simplefilter('always')
            warnings.showwarning = lambda *args, **kw: sys.stderr.write(warnings.formatwarning(*args[:4]))
            try:
                code = main.main([str(each) for each in argv])
            except SystemExit as error:
                code = error.code
    except Waits:
        found.append('waits:\n' + traceback.format_exc()[-3000:])
    except BaseException:
        found.append('raises:\n' + traceback.format_exc()[-3000:])
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, former)
        errors.text_of = text_of
        warnings.showwarning = shown
        for name in ('runnerkit',):
            close_logger(name)
    text = out.getvalue() + err.getvalue()
    found += [f'raw: {line[:300]}' for line in unsafe(text)[:3]]
    if 'Traceback (most' in text:
        found.append('traceback: ' + text[text.index('Traceback (most') :][-1500:])
    for error in caught:
        if not is_meant(error):
            found.append(
                f'an error nobody meant: {error!r:.300}\n' + ''.join(traceback.format_exception(error))[-1500:]
            )
    if '\n2030-01-01' in err.getvalue():
        found.append('forged: ' + text[text.index('\n2030-01-01') - 100 :][:300])
    return code, text, found


def is_meant(error):
    """Whether a `raise` of runnerkit has made ``error``, or the system."""
    if isinstance(error, OSError):
        return True
    frames = traceback.extract_tb(error.__traceback__)
    if not frames:
        return True
    last = frames[-1]
    if f'{os.sep}runnerkit{os.sep}' not in last.filename:
        return False
    return linecache.getline(last.filename, last.lineno).strip().startswith('raise')


def raw_in(logs):
    """Lines of text logs with unsafe characters, or that are forged."""
    found = []
    for path in filter(os.path.isfile, logs):  # a folder that is set aside has others
        text = path.read_text(encoding='utf-8', errors='surrogateescape')
        forged = [line for line in text.split('\n') if line.startswith('2030-01-01')]
        found += [f'{path.name}: {line[:200]}' for line in unsafe(text) + forged]
    return found
