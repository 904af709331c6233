"""Names of PaddleRec in errors. `tests/test_seed_paddlerec.py` has whole runs."""

import pytest

from runnerkit.compat.paddlerec.config import HINTS
from runnerkit.config.readers import hint_for_error


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
def test_hints_for_errors(code, name):
    with pytest.raises((NameError, AttributeError, ImportError, KeyError)) as caught:
        exec(code, {})
    assert hint_for_error(caught.value) == HINTS.get(name, '')
