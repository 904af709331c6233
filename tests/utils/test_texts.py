"""Numbers, times and sizes as short texts."""

import math

import pytest

from runnerkit.utils.texts import in_bytes, in_seconds, in_short, moment


@pytest.mark.parametrize(
    'made, text',
    [
        (in_short(0.123456), '0.1235'),
        (in_short(None), '-'),
        (in_short(math.nan), 'nan'),
        (in_short(12), '12'),
        (in_seconds(0.25), '0.25 s'),
        (in_seconds(42.4), '42 s'),
        (in_seconds(200), '3 min 20 s'),
        (in_seconds(7500), '2 h 05 min'),
        (in_seconds(math.inf), '-'),
        (in_bytes(10), '10 B'),
        (in_bytes(3 << 20), '3 MiB'),
        (in_bytes(1 << 41), '2 TiB'),
        (moment('yesterday'), ''),
        (moment(1e30), ''),
    ],
)
def test_short_texts(made, text):
    assert made == text
