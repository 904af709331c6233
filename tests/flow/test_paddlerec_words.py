"""Names of PaddleRec, and what takes their place. `tests/test_seed_paddlerec.py` has whole runs."""

import pytest

from runnerkit.flow.paddlerec_words import WORDS, way_out


@pytest.mark.parametrize(
    'code, name',
    [
        ('envs.get_global_env("x")', 'envs'),
        ('import paddlerec.core.utils', 'paddlerec'),
        ('import paddle.fluid', 'paddle'),
        ('object()._run()', '_run'),
        ('nothing_of_its', None),
        ('{}["env"]', None),  # the context says it itself
    ],
)
def test_the_way_out_of_an_error(code, name):
    with pytest.raises((NameError, AttributeError, ImportError, KeyError)) as caught:
        exec(code, {})
    assert way_out(caught.value) == WORDS.get(name, '')
