"""Vega's names around a search, used as its document uses them."""

import pytest

from runnerkit.compat.vega import ClassFactory, ClassType, Generator, PipeStep, ReportClient, ReportServer, run
from runnerkit.compat.vega.report import ReportRecord
from runnerkit.search.algorithm import Proposal, SearchAlgorithm
from runnerkit.search.pipeline import Pipeline
from runnerkit.search.record import Record


class Three(SearchAlgorithm):
    """Proposes 0, 1 and 2, and wants an answer before each next one."""

    def __init__(self, search_space=None):
        super().__init__(search_space, {'score': 'max'})
        self.asked, self.told = 0, []

    def search(self):
        if len(self.told) < self.asked:
            return None
        self.asked += 1
        return Proposal(desc={'depth': self.asked - 1}) if self.asked < 3 else {'depth': 2}

    def update(self, record):
        self.told.append(record.performance['score'])

    @property
    def is_completed(self):
        return len(self.told) == 3


class Loop(PipeStep):
    """The loop of section 4 of the document."""

    def do(self):
        self.generator = Generator(Three())
        while not self.generator.is_completed:
            number, desc = self.generator.sample()
            assert self.generator.sample() is None
            scores = {'score': -abs(desc['depth'] - 1.0)}
            ReportClient.update(Record(self.name, number, desc=desc, objectives={'score': 'max'}, performance=scores))
            ReportClient.get_record(self.name, number).status = 'completed'
            self.generator.update(self.name, number)
        ReportClient.update(Record(self.name, 7))
        ReportServer.close(self.name, 7)
        ReportServer.close(self.name, 0)
        assert len(ReportServer().all_records) == 3
        (best,) = ReportServer().pareto_front(self.name)
        assert best.desc == {'depth': 1}
        assert ReportServer().pareto_front('another') == []


def test_the_loop_of_the_document(tmp_path):
    pipeline = Pipeline({'pipeline': ['nas'], 'nas': {'pipe_step': {'type': Loop}}}, tmp_path)
    report = pipeline.run()
    assert pipeline.steps['nas'].generator.search_alg.told == [-1.0, 0.0, -1.0]
    assert [each.number for each in report.all_records] == [0, 1, 2]


def test_without_a_pipeline_there_is_no_report():
    for call in (lambda: ReportServer().all_records, lambda: ReportClient.get_record('nas', 0)):
        with pytest.raises(RuntimeError, match='no pipeline is running here'):
            call()


def test_a_step_is_registered_as_in_vega(tmp_path):
    @ClassFactory.register(ClassType.PIPE_STEP)
    class LoopOfMine(Loop):
        pass

    (tmp_path / 'nas.yml').write_text('pipeline: [nas]\nnas: {pipe_step: {type: LoopOfMine}}\n')
    assert len(run(tmp_path / 'nas.yml', tmp_path / 'work').all_records) == 3


def test_a_record_under_vegas_names():
    record = ReportRecord(step_name='nas', worker_id=3, desc={'depth': 2}, performance={'score': 1.0})
    assert (record.step, record.number, record.step_name, record.worker_id, record.uid) == ('nas', 3, 'nas', 3, 'nas_3')


def test_both_are_the_same_record():
    record = Record('nas', 3)
    view = ReportRecord.of(record)
    view.status = 'completed'
    record.performance['score'] = 2.0
    assert (record.status, view.performance) == ('completed', {'score': 2.0})


def test_a_serialized_record_has_items_and_attributes_and_comes_back():
    objectives = {'accuracy': 'max', 'params': 'min'}
    record = Record('nas', 3, desc={'depth': 2}, objectives=objectives, performance={'accuracy': 0.5, 'params': 7.0})
    content = ReportRecord.of(record).serialize()
    assert content['objectives'] == {'accuracy': 'MAX', 'params': 'MIN'}
    assert content.rewards == content['rewards'] == [0.5, -7.0]
    assert (content.step_name, content['worker_id'], content.desc.depth, content['uid']) == ('nas', 3, 2, 'nas_3')
    back = ReportRecord.parsed(content)
    assert back == record
    assert ReportRecord.parsed(record) is record
