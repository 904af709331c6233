"""Evolution of codes: it gets better than chance, goes on by repeating its calls, and works in a study."""

from pathlib import Path

import numpy as np
import pytest
from studies import outcome

from runnerkit.compat.vega.networks import SearchSpace
from runnerkit.compat.vega.prune import PruneCodec, PruneEA, best_first, crossed, crowding, flipped
from runnerkit.config import Config
from runnerkit.search.algorithm import SEARCH_ALGORITHMS, Codec
from runnerkit.search.executors import Ended, Executor
from runnerkit.search.job import Result
from runnerkit.search.pipeline import Pipeline
from runnerkit.search.record import Record
from runnerkit.search.study import Study, allowed

ROOT = Path(__file__).parents[3]
SPACE = {'type': 'Net', 'base_chn': [16, 16], 'base_chn_node': [8], 'num_classes': 10}
POLICY = {'length': 40, 'num_generation': 10, 'num_individual': 8, 'random_samples': 16}
OBJECTIVES = {'hits': 'max', 'size': 'min'}


def scores(code):
    """What a search has to find: channels 0 to 9 count, each kept one costs."""
    return {'hits': float(sum(code[:10])), 'size': float(sum(code))}


def searched(algorithm, fails=()):
    """All records of a search, one trial after another."""
    records = []
    while not algorithm.is_completed:
        desc = algorithm.search().desc
        number = len(records)
        record = Record('nas', number, desc=desc, objectives=algorithm.objectives, status='completed')
        record.performance = scores(algorithm.codec.encode(desc))
        if number in fails:
            record.status, record.performance = 'failed', {}
        algorithm.update(record)
        records.append(record)
    return records


def test_it_is_registered_as_the_seed_writes_it():
    algorithm = SEARCH_ALGORITHMS.build(
        {'type': 'PruneEA', 'codec': 'PruneCodec', 'policy': POLICY, 'space': SPACE, 'objectives': OBJECTIVES}
    )
    assert algorithm.trials == 16 + 10 * 8
    assert algorithm.length == 40


def test_evolution_beats_chance():
    def best(**policy):
        found = [
            max(2 * r.performance['hits'] - r.performance['size'] for r in searched(PruneEA(
                SPACE, OBJECTIVES, seed, policy={**POLICY, **policy})))
            for seed in range(5)
        ]  # fmt: skip
        return np.mean(found)

    assert best() > best(num_generation=0, random_samples=96) + 2


def test_no_code_is_proposed_twice_and_none_is_empty():
    records = searched(PruneEA(SPACE, OBJECTIVES, policy=POLICY))
    kept = [str(record.desc['encoding']) for record in records]
    assert len(set(kept)) == len(kept) == 96
    assert all(width for record in records for width in (*record.desc['chn'], *record.desc['chn_node']))


def test_the_same_seed_gives_the_same_search():
    def descs(seed):
        return [record.desc for record in searched(PruneEA(SPACE, OBJECTIVES, seed, policy=POLICY), fails=(3, 20))]

    assert descs(1) == descs(1)
    assert descs(1) != descs(2)


def test_it_waits_for_the_first_one_to_complete():
    algorithm = PruneEA(SPACE, {'hits': 'max'}, policy={**POLICY, 'random_samples': 1})
    first = algorithm.search()
    assert algorithm.search() is None
    algorithm.update(Record('nas', 0, desc=first.desc, objectives={'hits': 'max'}, status='failed'))
    second = algorithm.search()  # none to breed from: another random one
    assert second is not None
    algorithm.update(
        Record('nas', 1, desc=second.desc, objectives={'hits': 'max'}, status='completed', performance={'hits': 1.0})
    )
    child = algorithm.codec.encode(algorithm.search().desc)
    assert sum(a != b for a, b in zip(child, algorithm.codec.encode(second.desc), strict=True)) < 8


def test_a_codec_of_ones_own():
    class Bits(Codec):
        def encode(self, desc):
            return [int(bit) for bit in desc['bits'][1:]]

        def decode(self, code):
            return {'bits': 'b' + ''.join(map(str, code))}

    algorithm = PruneEA(None, OBJECTIVES, codec=Bits(), policy={**POLICY, 'length': 10})
    assert len(searched(algorithm)) == 96
    with pytest.raises(ValueError, match=r'policy\.length must be the length of a code, but got None'):
        PruneEA(None, OBJECTIVES, codec=Bits())


def test_other_proposals_take_the_place_of_refused_ones():
    def is_large(proposal):
        return 'large' if sum(proposal.desc['chn']) > 16 else None

    algorithm = PruneEA(SPACE, OBJECTIVES, policy={**POLICY, 'length': None})
    records = []
    while (proposal := allowed(algorithm, is_large, OBJECTIVES)) is not None:
        records.append(Record('nas', len(records), desc=proposal.desc, objectives=OBJECTIVES, status='completed'))
        records[-1].performance = scores(algorithm.codec.encode(proposal.desc))
        algorithm.update(records[-1])
    assert len(records) == algorithm.trials == 96
    assert all(is_large(record) is None for record in records)


def test_the_order_of_nsga2():
    #          front 0: ends first, then the roomier one       front 1
    rewards = [[0.0, 10.0], [4.0, 6.0], [5.0, 5.0], [10.0, 0.0], [1.0, 1.0]]
    assert crowding(rewards[:4]) == [np.inf, 1.0, 1.2, np.inf]
    assert best_first(rewards) == [0, 3, 2, 1, 4]
    assert best_first([[1.0], [3.0], [2.0]]) == [1, 2, 0]
    assert best_first([[1.0], [1.0]]) == [0, 1]
    assert crossed((1, 1, 1), (0, 0, 0), [True, False, True]) == (1, 0, 1)
    assert flipped((1, 1, 0), [False, True, True]) == (1, 0, 1)


@pytest.mark.parametrize(
    ('policy', 'error', 'words'),
    [
        ({'num_generations': 3}, KeyError, 'num_generation'),
        ({'num_individual': 0}, ValueError, r'policy\.num_individual'),
        ({'random_samples': 2.5}, TypeError, r'policy\.random_samples'),
        ({'length': 464}, ValueError, 'but got 464: the network has 40 channels'),
        ([31], TypeError, 'policy must be a dict'),
    ],
)
def test_wrong_policies(policy, error, words):
    with pytest.raises(error, match=words):
        PruneEA(SPACE, OBJECTIVES, policy=policy)


def study(folder, generations=1):
    """A study of the gallery's network, on few digits."""
    changes = {
        'runner.max_epochs': 1,
        'data.train.part': 'val',
        'data.train.augment': False,
        'lr_config': None,
        'log_config.hooks': [],
    }
    network = Config.fromfile(str(ROOT / 'configs/search/resnet.py')).model.model
    algorithm = {
        'type': 'PruneEA',
        'codec': 'PruneCodec',
        'policy': {'length': 80, 'num_generation': generations, 'num_individual': 2, 'random_samples': 2},
    }
    return Study(
        ROOT / 'configs/search/resnet.py',
        network,
        {'accuracy': 'max'},
        folder,
        algorithm,
        seed=4,
        device='cpu',
        overrides=changes,
        network='model.model',
    )


@pytest.mark.thorough  # the tests of its steps
def test_a_study_prunes_and_goes_on(tmp_path):
    whole = study(tmp_path / 'whole').run()
    assert [record.status for record in whole.all_records] == ['completed'] * 4
    kept = [str(record.desc['backbone']['encoding']) for record in whole.all_records]
    assert len(set(kept)) == 4
    assert f'model.model.backbone.encoding={kept[2]}'.replace(' ', '') in whole.all_records[2].command
    study(tmp_path / 'cut', generations=0).run()
    assert outcome(study(tmp_path / 'cut').run()) == outcome(whole)


class Dies(Exception):
    """Stands for kill -9."""


class Shuffled(Executor):
    """Two jobs at once that end in any order, with scores that follow from the job; dies after some of them."""

    slots = 2

    def __init__(self, rng, lives):
        self.rng, self.lives, self.jobs = rng, lives, []

    def start(self, job, report):
        self.jobs.append(job)

    def wait(self, seconds):
        if not self.lives:
            raise Dies
        self.lives -= 1
        job = self.jobs.pop(int(self.rng.integers(len(self.jobs))))
        kept = sum(sum(each) for key, each in job.overrides.items() if key.endswith('chn'))
        found = {'hits': float(job.seed % 7), 'size': float(kept)}
        return [Ended(job, Result('completed', found, step=1))]

    @property
    def running(self):
        return len(self.jobs)


@pytest.mark.parametrize('seed', range(6))
def test_with_two_at_a_time_it_goes_on_wherever_it_was_killed(seed, tmp_path):
    rng = np.random.default_rng(seed)
    policy = {'length': 40, 'num_generation': 3, 'num_individual': 4, 'random_samples': 6}
    (tmp_path / 'config.py').write_text('model = dict(type="Net")\n')
    lives = 0
    while True:
        algorithm = {'type': 'PruneEA', 'codec': 'PruneCodec', 'policy': policy}
        executor = Shuffled(rng, int(rng.integers(1, 5)))
        space = {'type': 'SearchSpace', 'modules': ['backbone'], 'backbone': SPACE}
        study = Study(tmp_path / 'config.py', space, OBJECTIVES, tmp_path / 'study', algorithm, executor, seed=4)
        try:
            report = study.run()
            break
        except Dies:
            lives += 1
    assert lives > 3
    assert [record.status for record in report.all_records] == ['completed'] * 18
    assert len({str(record.desc) for record in report.all_records}) == 18


VEGA = """
pipeline: [nas, fullytrain]
nas:
  pipe_step: {type: SearchPipeStep}
  dataset:
    type: DIGITS
    common: {batch_size: 64}
    train: {part: val}
    val: {part: val}
  search_space:
    type: SearchSpace
    modules: ['backbone']
    backbone:
      type: 'NETWORKS:PruneResNet'
      base_chn: [8, 8, 16, 16]
      base_chn_node: [8, 8, 16]
      num_classes: 10
  search_algorithm:
    type: PruneEA
    codec: PruneCodec
    policy: {length: 80, num_generation: 1, num_individual: 1, random_samples: 2}
  trainer:
    type: Trainer
    optim: {type: SGD, params: {lr: 0.1}}
    loss: {type: CrossEntropyLoss}
    metric: {type: accuracy}
    epochs: 1
fullytrain:
  pipe_step: {type: TrainPipeStep}
"""


def test_the_section_as_the_seed_writes_it(tmp_path):
    text = VEGA.replace('DIGITS', f"'{ROOT}/configs/mnist/digits.py:Digits'")
    (tmp_path / 'nas.yml').write_text(text.replace('NETWORKS', f'{ROOT}/configs/search/networks.py'))
    report = Pipeline(tmp_path / 'nas.yml', tmp_path / 'work', device='cpu').run()
    assert [each.status for each in report.of('nas')] == ['completed'] * 3
    best, (trained,) = report.best('nas'), report.of('fullytrain')
    assert trained.desc == best.desc
    assert len(best.desc['backbone']['chn']) == 4


# --- the codec -------------------------------------------------------------------------------------------------------

CODED = {
    'type': 'SearchSpace',
    'modules': ['backbone'],
    'backbone': {'type': 'Net', 'base_chn': [2, 3], 'base_chn_node': [2], 'num_classes': 10},
}


def test_decode_and_encode_as_vega_does():
    codec = PruneCodec(CODED)
    assert codec.length == 7
    code = (0, 1, 0, 0, 1, 1, 1)
    desc = codec.decode(code)
    assert desc['modules'] == ['backbone']
    assert desc['backbone'] == {
        **CODED['backbone'],
        'chn': [1, 1],
        'chn_mask': [[0, 1], [0, 0, 1]],
        'chn_node': [2],
        'chn_node_mask': [[1, 1]],
        'encoding': [*code],
    }
    assert codec.encode(desc) == code
    assert 'chn' not in CODED['backbone']


def test_the_section_of_the_seed_has_464_bits():
    backbone = {'base_chn': [16, 16, 16, 32, 32, 32, 64, 64, 64], 'base_chn_node': [16, 16, 32, 64]}
    assert PruneCodec({'modules': ['backbone'], 'backbone': backbone}).length == 464


def test_a_network_without_modules_and_an_object_with_the_section():
    desc = PruneCodec(CODED['backbone']).decode([1] * 7)
    assert (desc['chn'], desc['chn_node']) == ([2, 3], [2])
    assert PruneCodec(SearchSpace(CODED)).decode([1] * 7) == {'modules': ['backbone'], 'backbone': desc}


def test_a_layer_keeps_at_least_one_channel():
    codec = PruneCodec(CODED)
    desc = codec.decode([0] * 7)
    assert desc['backbone']['chn'] == [1, 1]
    assert codec.encode(desc) == tuple(desc['backbone']['encoding']) == (1, 0, 1, 0, 0, 1, 0)


def test_the_whole_network_keeps_all():
    assert PruneCodec(CODED).encode(CODED) == (1,) * 7


@pytest.mark.parametrize(
    ('section', 'error', 'words'),
    [
        (None, TypeError, 'search_space must describe the network to prune'),
        ({'modules': ['backbone'], 'backbone': {'type': 'Net'}}, KeyError, 'base_chn and base_chn_node'),
        ({'base_chn': 16}, TypeError, 'base_chn must be a list of widths'),
    ],
)
def test_wrong_sections(section, error, words):
    with pytest.raises(error, match=words):
        PruneCodec(section)


def test_wrong_codes_and_descriptions():
    codec = PruneCodec(CODED['backbone'])
    with pytest.raises(ValueError, match='must have 7 bits, one for each channel, but got 3'):
        codec.decode([1, 0, 1])
    with pytest.raises(ValueError, match=r'chn must be the widths that chn_mask keeps, but got \[1, 3\]'):
        codec.encode({**CODED['backbone'], 'chn': [1, 3]})
    with pytest.raises(TypeError, match=r'chn_mask must have a list .* for each of the widths \[2, 3\], but got \[\[1'):
        codec.encode({**CODED['backbone'], 'chn_mask': [[1, 0]]})
