from runnerkit.compat.vega.record import ReportRecord
from runnerkit.search.record import Record


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
