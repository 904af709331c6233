"""Search algorithms and codecs as Vega's users write them: what a study gives them, and what it gets of them."""

import pytest

from runnerkit.compat.vega import (
    ClassFactory,
    ClassType,
    Codec,
    Generator,
    NetworkDesc,
    PipeStep,
    Proposal,
    ReportRecord,
    SearchAlgorithm,
)
from runnerkit.compat.vega.prune import PruneCodec, PruneEA
from runnerkit.search.algorithm import SEARCH_ALGORITHMS
from runnerkit.search.executors import Ended, Executor
from runnerkit.search.job import Result
from runnerkit.search.parameters import Float
from runnerkit.search.pipeline import Pipeline
from runnerkit.search.space import Space, as_space
from runnerkit.search.study import Study

SECTION = {'modules': ['backbone'], 'backbone': {'type': 'Net', 'base_chn': [2, 3], 'base_chn_node': [2]}}
OBJECTIVES = {'hits': 'max', 'size': 'min'}


pytestmark = pytest.mark.usefixtures('registries_as_before')


def register_ones():
    """As a user writes it: it sets one bit more in each trial, and numbers them from 1."""

    @ClassFactory.register(ClassType.SEARCH_ALGORITHM)
    class Ones(SearchAlgorithm):
        def __init__(self, search_space=None, **kwargs):
            super().__init__(search_space, **kwargs)
            self.length, self.count, self.told = self.config.policy.length, 0, []

        def search(self):
            self.count += 1
            desc = self.codec.decode([int(bit < self.count) for bit in range(self.length)])
            return self.count, desc

        def update(self, record):
            self.told.append((record['worker_id'], record.performance, record['desc']['backbone']['encoding']))

        @property
        def is_completed(self):
            return self.count == self.config.policy.num_samples

    return Ones


ALGORITHM = {'type': 'Ones', 'codec': 'PruneCodec', 'policy': {'length': 7, 'num_samples': 4}}


class Scores(Executor):
    """Ends each job at once, with scores that follow from it."""

    slots = 1

    def __init__(self):
        self.jobs = []

    def start(self, job, report):
        self.jobs.append(job)

    def wait(self, seconds):
        job = self.jobs.pop()
        code = job.overrides['model.backbone.encoding']
        return [Ended(job, Result('completed', {'hits': float(code[0]), 'size': float(sum(code))}, step=1))]

    @property
    def running(self):
        return len(self.jobs)


def study(folder, trials, why_not=None):
    (folder / 'config.py').write_text('model = dict(type="Net")\n')
    algorithm = {**ALGORITHM, 'policy': {'length': 7, 'num_samples': trials}}
    return Study(folder / 'config.py', SECTION, OBJECTIVES, folder / 'study', algorithm, Scores(), why_not=why_not)


def test_a_study_asks_it_and_goes_on(tmp_path):
    register_ones()
    first = study(tmp_path, 2)
    first.run()
    whole = study(tmp_path, 4)
    report = whole.run()
    assert [each.performance['size'] for each in report.all_records] == [3, 4, 4, 5]  # a layer keeps a channel
    told = whole.algorithm.own.told
    assert [number for number, *_ in told] == [1, 2, 3, 4]
    assert told[:2] == first.algorithm.own.told
    assert [sum(code) for *_, code in told] == [3, 4, 4, 5]
    assert whole.algorithm.own.objectives == OBJECTIVES


def test_a_refused_proposal_is_told_with_its_own_number(tmp_path):
    register_ones()
    small = study(tmp_path, 4, lambda proposal: 'even' if sum(proposal.desc['backbone']['chn']) == 2 else None)
    report = small.run()
    told = [(number, bool(scores)) for number, scores, _ in small.algorithm.own.told]
    assert len(told) == 4
    assert [number for number, _ in told] == [1, 2, 3, 4]
    assert [ran for _, ran in told].count(True) == len(report.all_records) < 4


def made_of(kind, space, **section):
    """As a study makes it of its section."""
    return SEARCH_ALGORITHMS.build({'type': kind, 'space': space, 'objectives': OBJECTIVES, 'seed': 7, **section})


class Base(SearchAlgorithm):
    def search(self):
        return 5, {'optimizer.lr': 0.1}

    @property
    def is_completed(self):
        return False


class OnlySpace(Base):
    def __init__(self, search_space):
        super().__init__(search_space)


class Spelled(Base):
    def __init__(self, search_space=None, **kwargs):
        super(Spelled, self).__init__(search_space, **kwargs)  # noqa: UP008  # as the document does


@pytest.mark.parametrize('kind', [Base, OnlySpace, Spelled])
def test_constructors(kind):
    space = Space({'optimizer.lr': Float(0.0, 1.0)})
    made = made_of(kind, space, policy={'num': 3})
    assert type(made).__name__ == kind.__name__  # as messages call it
    own = made.own
    assert (own.objectives, own.seed, own.search_space, own.codec) == (OBJECTIVES, 7, space, None)
    assert own.config.policy.num == 3
    assert made.search() == {'optimizer.lr': 0.1}
    assert made.is_completed is False


def test_a_constructor_as_any_other_algorithm_has_it_is_called_as_any_other():
    class Plain(Base):
        def __init__(self, space, objectives, seed=0, codec=None, trials=3):
            super().__init__(space, objectives, seed, codec)
            self.trials = trials

    made = made_of(Plain, SECTION, trials=5)
    assert (type(made), made.trials, made.seed, made.objectives) == (Plain, 5, 7, OBJECTIVES)


@pytest.mark.parametrize(
    ('found', 'proposal'),
    [
        ((3, SECTION), Proposal(desc=SECTION)),
        ((3, NetworkDesc(SECTION)), Proposal(desc=SECTION)),
        (SECTION, Proposal(desc=SECTION)),
        (Proposal(hps={'a': 1}), Proposal(hps={'a': 1})),
        (None, None),
    ],
)
def test_what_search_may_return(found, proposal):
    class Returns(Base):
        def search(self):
            return found

    assert made_of(Returns, as_space(SECTION)).search() == proposal


def test_an_algorithm_derived_from_prune_ea():
    class Mine(PruneEA):
        def __init__(self, search_space=None, **kwargs):
            super().__init__(search_space, **kwargs)

    policy = {'num_generation': 1, 'num_individual': 1, 'random_samples': 2}
    mine = made_of(Mine, as_space(SECTION), policy=policy)
    ours = made_of(PruneEA, as_space(SECTION), policy=policy)
    for number in range(3):
        proposal = mine.search()
        assert proposal == ours.search()
        scores = {'hits': 1.0, 'size': float(number)}
        record = ReportRecord('nas', number, desc=proposal.desc, objectives=OBJECTIVES, performance=scores)
        record.status = 'completed'
        mine.update(record)
        ours.update(record)
    assert (mine.is_completed, ours.is_completed) == (True, True)
    assert mine.own.population == ours.population


# --- codecs ----------------------------------------------------------------------------------------------------------


def test_a_codec_of_a_name():
    codec = Codec(SECTION, type='PruneCodec')
    assert isinstance(codec, PruneCodec)
    with pytest.raises(KeyError, match='PruneCodecs is not in the codec registry'):
        Codec(SECTION, type='PruneCodecs')
    with pytest.raises(RuntimeError, match='no pipeline is running here'):
        Codec(SECTION)


def test_a_codec_as_a_user_writes_it():
    @ClassFactory.register(ClassType.CODEC)
    class Halves(Codec):
        def __init__(self, search_space=None, **kwargs):
            super().__init__(search_space, **kwargs)
            self.widths = self.search_space.backbone.base_chn

        def encode(self, desc):
            return desc['code']

        def decode(self, code):
            return {'code': list(code)}

    @ClassFactory.register(ClassType.CODEC)
    class Inherits(Halves):
        pass

    space = as_space(SECTION)
    for name in ('Halves', 'Inherits'):
        assert Codec(space.search_space, type=name).widths == [2, 3]
        policy = {'length': 4, 'num_generation': 0, 'random_samples': 1}
        ours = PruneEA(space, OBJECTIVES, codec=name, policy=policy)
        assert len(ours.search().desc['code']) == 4
        theirs = made_of(Base, space, codec=name)
        assert theirs.own.codec.widths == [2, 3]


# --- the algorithm of the running step -------------------------------------------------------------------------------


def in_a_step(tmp_path, do, **section):
    class Step(PipeStep):
        def do(self):
            do(self)

    Pipeline({'pipeline': ['nas'], 'nas': {'pipe_step': {'type': Step}, **section}}, tmp_path).run()


def test_the_algorithm_of_the_step(tmp_path):
    own, found = register_ones(), {}

    def do(step):
        found['own'] = SearchAlgorithm()
        found['other'] = SearchAlgorithm(SECTION, type='PruneEA', policy={'random_samples': 1, 'num_generation': 0})
        found['codec'] = Codec(SECTION)
        generator = Generator()
        found['first'] = number, desc = generator.sample()
        record = ReportRecord('nas', number, desc=desc, objectives=OBJECTIVES, performance={'hits': 1, 'size': 2})
        step.report.update(record)
        generator.update('nas', number)
        found['told'] = generator.search_alg.told

    in_a_step(tmp_path, do, search_algorithm=ALGORITHM, search_space=SECTION, objectives=OBJECTIVES)
    assert (type(found['own']), found['own'].objectives) == (own, OBJECTIVES)
    number, desc = found['other'].search()
    assert (number, len(desc['backbone']['encoding'])) == (0, 7)
    assert found['other'].is_completed
    assert isinstance(found['codec'], PruneCodec)
    assert found['first'][0] == found['told'][0][0] == 1


def test_a_search_of_values_in_a_step(tmp_path):
    """The objectives are those that Vega's sections name; PruneEA is not the only algorithm."""
    found = {}

    def do(step):
        found['algorithm'] = SearchAlgorithm()
        found['drawn'] = found['algorithm'].search()

    space = {'hyperparameters': [{'key': 'trainer.lr', 'type': 'FLOAT', 'range': [0.0, 1.0]}]}
    algorithm = {'type': 'RandomSearch', 'objective_keys': 'loss', 'policy': {'num_sample': 3}}
    in_a_step(tmp_path, do, search_algorithm=algorithm, search_space=space)
    assert found['algorithm'].objectives == {'loss': 'min'}
    number, values = found['drawn']
    assert (number, [*values]) == (0, ['trainer.lr'])


def test_a_step_without_what_is_asked(tmp_path):
    def do(step):
        with pytest.raises(KeyError, match="the running step 'nas' has no section search_algorithm"):
            SearchAlgorithm(SECTION)
        with pytest.raises(KeyError, match="the running step 'nas' has no section search_space"):
            Generator()

    in_a_step(tmp_path, do)
    with pytest.raises(KeyError, match="search_algorithm of the running step has no 'codec'"):
        in_a_step(tmp_path, lambda step: Codec(SECTION), search_algorithm={'type': 'Ones'})
    with pytest.raises(RuntimeError, match='no pipeline is running here'):
        SearchAlgorithm(SECTION)
