"""What lines are events, and which are kept aside."""

import pytest

from runnerkit.data.source import Event, Malformed, Source, parse_line, shortened_text


def test_a_line_is_json_or_kept_aside():
    assert parse_line(b'{"a": 1}\n') == {'a': 1}
    for line in (b'{"a"\n', b'\xff\xfe\n', b'[' * 100000):
        found = parse_line(line, offset=7)
        assert isinstance(found, Malformed)
        assert found.offset == 7
        assert found.problem.startswith('no JSON: ')


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
