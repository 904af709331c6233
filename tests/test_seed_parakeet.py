"""The code of the seed document on Parakeet's ExperimentBase, as it stands there.

docs/dev/seeds_parakeet.md says where everything else of it is tested.
"""

import textwrap
from types import SimpleNamespace

import pytest
import torch
from experiments import Line, config
from seed_documents import Changes
from support import weights

SETUP = """
def __init__(self, config, args):
    self.config = config
    self.args = args

def setup(self):
    paddle.set_device(self.args.device)
    if self.parallel:
        self.init_parallel()

    self.setup_output_dir()
    self.dump_config()
    self.setup_visualizer()
    self.setup_logger()
    self.setup_checkpointer()

    self.setup_dataloader()
    self.setup_model()

    self.iteration = 0
    self.epoch = 0
"""

USE = """
exp = Experiment(config, args)
exp.setup()
"""

LOOP = """
def train(self):
    self.new_epoch()
    while self.iteration < self.config.training.max_iteration:
        self.iteration += 1
        self.train_batch()

        if self.iteration % self.config.training.valid_interval == 0:
            self.valid()

        if self.iteration % self.config.training.save_interval == 0:
            self.save()
"""

RUN = """
exp.run()
"""

CHANGES = Changes('from_parakeet.md')


class Noted(Line):
    """The four methods that a user writes, and what was called."""

    def setup_model(self):
        super().setup_model()
        self.called = []

    def read_batch(self):
        assert len(self.called) < 100  # a loop that counts nothing never ends
        self.called.append('read')
        return super().read_batch()

    def valid(self):
        self.called.append(f'valid {self.iteration}')
        return super().valid()


def run(folder, *methods):
    """Train an experiment with these methods, by the document's three lines."""
    space = {'Base': Noted, 'config': config(seed=5), 'args': SimpleNamespace(output=str(folder), device='cpu')}
    body = textwrap.indent(''.join(methods) or 'pass', '    ')
    exec(f'class Experiment(Base):\n{body}', space)
    exec(USE + RUN, space)
    return space['exp']


@pytest.fixture(scope='module')
def whole(tmp_path_factory):
    """With nothing but the four methods."""
    return run(tmp_path_factory.mktemp('whole'))


def test_three_lines_train_an_experiment(whole):
    assert [call for call in whole.called if call != 'read'] == ['valid 3', 'valid 6', 'valid 9', 'valid 12']
    assert (whole.iteration, whole.outcome.kind) == (12, 'completed')


@pytest.mark.parametrize('listings', [(SETUP,), (LOOP,), (SETUP, LOOP)], ids=['setup', 'loop', 'both'])
def test_the_listings_train_as_the_base_does(listings, whole, tmp_path):
    """Its `setup` calls none of the steps that only we have; `valid` is called, and the weights are the same."""
    made = run(tmp_path, *map(CHANGES.applied, listings))
    assert made.called == whole.called
    assert torch.equal(weights(made.model), weights(whole.model))
    assert sorted(path.name for path in tmp_path.glob('*.pth')) == [
        'iter_12.pth',
        'iter_4.pth',
        'iter_8.pth',
        'latest.pth',
    ]


@pytest.mark.parametrize('row', CHANGES.rows)
def test_the_page_names_no_change_that_is_not_needed(row, tmp_path):
    listing = next(each for each in (SETUP, LOOP) if row in CHANGES.needed_by(each))
    with pytest.raises((AssertionError, AttributeError, NameError, RuntimeError, TypeError)):
        run(tmp_path, CHANGES.applied(listing, without=row))
