"""The model of a run, from a config that Python holds and the one in the work dir."""

import logging

import pytest

from runnerkit.config import Config
from runnerkit.flow.use.as_trained import as_trained


class Net:
    """Stands for a class of the user."""


KEPT = """
model = dict(
    type='{{ fileDirname }}/code/nets.py:Net', net='<object> Net()', width=64,
    layers=[dict(type='ReLU'), dict(type='a.Net')], more=None)
"""


@pytest.fixture
def laid(tmp_path, caplog):
    def call(text, **model):
        (tmp_path / 'config.py').write_text(text)
        given = Config({'model': model, 'seed': 3})
        found = as_trained(given, tmp_path / 'config.py')
        return found, caplog.text

    return call


def test_the_run_has_the_last_word_on_values_and_python_on_objects(laid):
    net = Net()
    layers = [dict(type='Tanh'), dict(type=Net)]
    found, said = laid(KEPT, type=Net, net=net, width=32, layers=layers, own=1)
    assert found.model.type is Net
    assert found.model.net is net
    assert (found.model.width, found.model.layers[0].type, found.model.layers[1].type) == (64, 'ReLU', Net)
    assert 'own' not in found.model
    assert found.seed == 3
    for told in ('model.width 64 (not 32)', "model.layers[0].type 'ReLU' (not 'Tanh')", 'model.own None (not 1)'):
        assert told in said


@pytest.mark.parametrize('text', [
    KEPT, 'seed = 1', "import os\nmodel = dict(type=os.sep)", "model = __import__('os').system('false')",
])  # fmt: skip
def test_nothing_changes_where_the_run_says_the_same_or_nothing(laid, text):
    net = Net()
    same = dict(type='nets.py:Net', net=net, width=64, layers=[dict(type='ReLU'), dict(type=Net)])
    found, said = laid(text, **same)
    assert found.model.net is net
    assert found.model.type == 'nets.py:Net'
    assert said == ''
    assert logging.getLogger('runnerkit') is not None
