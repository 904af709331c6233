"""Config readers. PaddleRec's is in tests/compat/paddlerec/test_config.py; here, one of an installed package."""

import sys

import pytest
from installed import install

from runnerkit.cli.train import load_runs
from runnerkit.config.readers import config_readers, hint_for_name

READER = """
from runnerkit.config import Config
from runnerkit.config.readers import ConfigReader, Run

class Recipes(ConfigReader):
    hints = {'Kitchen': 'write a runner'}

    def recognizes(self, cfg):
        return 'recipes' in cfg

    def read_runs(self, cfg):
        return [Run(name, Config(dict(runner=dict(max_epochs=epochs))), 'cpu') for name, epochs in cfg.recipes.items()]
"""


@pytest.fixture
def recipes(tmp_path, monkeypatch):
    install(tmp_path, monkeypatch, 'recipes_pack', READER, 'runnerkit.config_readers', recipes='recipes_pack:Recipes')
    yield
    sys.modules.pop('recipes_pack', None)


def test_an_installed_package_reads_its_configs(tmp_path, recipes):
    (tmp_path / 'cfg.py').write_text('recipes = dict(soup=2, cake=3)')
    runs = load_runs(str(tmp_path / 'cfg.py'), sections=['runner'])
    assert [(run.name, run.cfg.runner.max_epochs, run.device) for run in runs] == [
        ('soup', 2, 'cpu'),
        ('cake', 3, 'cpu'),
    ]
    assert [type(reader).__name__ for reader in config_readers()] == ['PaddleRecReader', 'Recipes']
    assert hint_for_name('Kitchen') == 'write a runner'
    assert hint_for_name('Garden') == ''


def test_a_complete_config_asks_no_reader(tmp_path, recipes):
    (tmp_path / 'cfg.py').write_text('model = data = optimizer = runner = recipes = dict()')
    (run,) = load_runs(str(tmp_path / 'cfg.py'), sections=['model'])
    assert (run.name, run.device) == ('', None)
    assert 'recipes_pack' not in sys.modules
