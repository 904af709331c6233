"""What lines are events, and which are kept aside."""

import io
import math

import pytest

from runnerkit.data import source as source_file
from runnerkit.data.source import Event, Lines, Malformed, Source, is_offset, parse_event, parse_line, shortened_text


def test_a_line_is_json_or_kept_aside():
    assert parse_line(b'{"a": 1}\n') == {'a': 1}
    for line in (
        b'{"a"\n',
        b'\xff\xfe\n',
        b'[' * 100000,
        b'{"a": NaN}',
        b'-Infinity',
        b'{"x": 1e999}',
        b'[[-1e400]]',
        b'\0\1\2',
    ):
        found = parse_line(line, offset=7)
        assert isinstance(found, Malformed)
        assert found.offset == 7
        assert found.problem.startswith('no JSON: ')


def test_an_event_is_parsed_with_its_offset():
    assert parse_event(b'{"a": 1}', [7, 1]) == Event([7, 1], {'a': 1})
    assert (parse_event(b'', 7).problem[:7], parse_event(b'', 7).offset) == ('no JSON', 7)


def test_what_is_kept_is_text_and_short():
    assert shortened_text(b'a\xffb\n') == 'a\\xffb'
    assert shortened_text(b'x' * 20, longest=5) == 'xxxxx…'


def test_a_source_needs_only_read():
    class Three(Source):
        def read(self, after):
            yield from (Event(n, n) for n in range(3) if after is None or n > after)

    source = Three()
    assert [event.payload for event in source.read(0)] == [1, 2]
    source.acknowledge(1)
    source.close()
    with pytest.raises(TypeError, match='read'):
        Source()


@pytest.mark.parametrize('whole', [True, False])
def test_lines_have_an_end_and_are_not_too_long(whole, monkeypatch):
    monkeypatch.setattr(source_file, 'LONGEST', 5)
    text = b'one\ntwelve\n1234\n12345\nlonger than all\n\nfive5\nhalf'

    class Grows(io.BytesIO):
        """A file that has something new, of any length, each time that it is read."""

        def readline(self, size):
            return super().readline(size if whole else min(size, 3))

    def told(found):
        return [each.text if isinstance(each, Malformed) else each for each in found]

    lines = Lines(Grows(text))
    assert told(lines.read()) == [b'one\n', 'twelve', b'1234\n', '12345', 'longer', b'\n', 'five5']
    assert told(lines.read()) == []
    assert [*lines.last(), *lines.last()] == [b'half']


def test_what_can_be_an_offset():
    assert all(map(is_offset, (0, -3, 1.5, '', 'a', [1, 'b'], ('a', 2), 2**63 - 1, 9e18)))
    for wrong in (
        None,
        True,
        math.nan,
        math.inf,
        [],
        {},
        [None],
        [[1]],
        [1, math.nan],
        b'1',
        2**63,
        -(10**300),
        1e300,
        ['a', 10**300],
    ):
        assert not is_offset(wrong)
