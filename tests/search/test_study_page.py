"""The report of a study."""

import json
import math
import re
from dataclasses import replace
from html import escape as html_escape

import pytest
import written_runs as made

import runnerkit
from runnerkit.cli.main import main
from runnerkit.search.record import Record
from runnerkit.search.report import REPORTS, Report
from runnerkit.search.space import Space
from runnerkit.search.study_page import (
    LEAST_TRIALS,
    importance,
    longer_command,
    readable_records,
    study_page,
    write_report,
)

EVIL = '</script><script>document.title="run"</script>\'"&<!--'


def record(number, score=0.5, status='completed', **more):
    values = {'lr': 0.1 * (number + 1), 'kind': 'ab'[number % 2], 'a.width': 2**number}
    folder = f'/elsewhere/study/search/trials/{number:04d}/search_{number:04d}'
    return Record(
        'search', number, values, objectives={'acc': 'max'}, performance={'acc': score}, status=status,
        start=100.0 + number, end=102.5 + number, command=f'runnerkit train x.py --seed {number}', work_dir=folder,
        **more,
    )  # fmt: skip


RECORDS = [
    record(0, 0.5),
    record(1, 0.9),
    record(2, 0.95, 'pruned', message='pruned by the study'),
    record(3, math.nan, 'failed', message=EVIL),
    record(4, 0.7),
]


@pytest.fixture
def study(tmp_path):
    """The folder of a pipeline with a search of five trials, and another step."""
    folder = tmp_path / 'study'
    folder.mkdir()
    Report(
        [*RECORDS, Record('train', 0, objectives={'acc': 'max'}, performance={'acc': 0.95}, status='completed')]
    ).save(folder)
    for each in RECORDS[:4]:
        lines = made.lines_of(loss=1 - each.performance['acc'])
        made.write_log(folder.joinpath('search', 'trials', f'{each.number:04d}', f'search_{each.number:04d}'), lines)
    return folder


def test_a_study_has_charts_curves_and_commands(study):
    assert runnerkit.write_report is write_report
    page = write_report(study)
    assert page == study / 'report.html'
    text = page.read_text()
    titles = re.findall(r'<figcaption><b>([^<]*)', text)
    assert titles[0] == 'History, and the best so far'
    assert titles[1:4] == ['acc over lr', 'acc over kind', 'acc over a.width']
    assert titles[4:] == ['Values and acc', 'Trials by worker', 'History, and the best so far']
    assert '5 trials on 3 workers' in text
    places = [place.split(',') for place in re.search(r'<polyline class="line" points="([^"]*)"', text)[1].split()]
    assert len(places) == 4  # of the trials with a score
    assert len({y for _, y in places}) == 2  # the pruned one is never the best
    for each in RECORDS:
        assert f'<pre>{each.command}</pre>' in text
    (panel,) = json.loads(re.search(r'id="data">(.*?)</script>', text)[1])['panels']
    assert panel['title'] == 'search: acc'
    looks = [(series['kind'], series['colour']) for series in panel['series']]
    assert looks == [('thin', '--c0'), ('best', '--c1'), ('thin', '--soft'), ('thin', '--soft')]
    assert EVIL not in text


def test_the_best_trial_is_first_and_marked(study):
    table = study_page(study).split('Trials of search</h2>')[1].split('</section>')[0]
    first = re.findall(r'<tr><th scope=row class="([^"]*)" data-value="\d">([^<]*)', table)
    assert first == [('n best', '★ 1'), ('n', '4'), ('n', '0'), ('n', '2'), ('n', '3')]


SPACE = Space(
    {
        'lr': {'type': 'Float', 'low': 0.1, 'high': 1.0, 'log': True},
        'kind': ['b', 'c', 'a'],
        'a.width': [1, 2, 4, 8, 16],
    }
)


def ticks(text, title):
    figure = text.split(f'<b>{title}</b>')[1].split('</figure>')[0]
    return re.findall(r'<text class="x"[^>]*>([^<]*)', figure)


def test_axes_are_those_of_the_space(study):
    before = study_page(study)
    assert ticks(before, 'acc over lr') == ['0.1', '0.3', '0.5']
    assert ticks(before, 'acc over kind') == ['a', 'b']
    (study / 'search' / 'study.json').write_text(json.dumps({'search_space': repr(SPACE)}))
    text = study_page(study)
    assert ticks(text, 'acc over lr') == ['0.1', '0.224', '0.5']  # the middle of a logarithmic scale
    assert ticks(text, 'acc over kind') == ['b', 'c', 'a']
    assert ticks(text, 'acc over a.width') == ['1', '2', '4', '8', '16']


@pytest.mark.parametrize(
    'space', ['Space(', 'Space({1: 2})', "Space({'lr': Float(low=f(), log=True)})", 5, None, 'a' * 9, '(' * 9999]
)
def test_a_space_that_cannot_be_read_has_axes_by_the_values(study, space):
    before = study_page(study)
    (study / 'search' / 'study.json').write_text(json.dumps({'search_space': space}))
    assert study_page(study) == before


def test_importance_is_shown_of_enough_trials(tmp_path):
    for count in (LEAST_TRIALS - 1, LEAST_TRIALS):
        Report([record(i, i % 2 / 2) for i in range(count)]).save(tmp_path)
        assert ('<b>Importance</b>' in study_page(tmp_path)) == (count == LEAST_TRIALS)


def test_the_best_trial_is_trained_longer_by_a_command(study):
    command = (
        "runnerkit train 'a b.py' --work-dir x/search_0001_again --cfg-options lr=0.1 'w=[1,2]' runner.max_epochs=3"
    )
    found = replace(record(1, 0.9), command=command, epoch=3)
    longer = (
        "runnerkit train 'a b.py' --work-dir x/search_0001_longer --cfg-options runner.max_epochs=6 lr=0.1 'w=[1,2]'"
    )
    by_epoch = {'config': {'runner': {'max_epochs': 3}}}
    assert longer_command(found, by_epoch) == longer
    short = replace(found, command='runnerkit train a.py --work-dir x')
    by_iter = {'config': {'runner': {'max_iters': 5}}}
    assert longer_command(short, by_iter) == 'runnerkit train a.py --work-dir x_longer --cfg-options runner.max_iters=6'
    assert longer_command(found, {}) == longer_command(replace(found, command="'"), by_epoch) == ''
    Report([found]).save(study)
    (study / 'search' / 'study.json').write_text(json.dumps(by_epoch))
    assert html_escape(longer) in study_page(study)


def test_two_objectives_have_a_front(tmp_path):
    both = {'acc': 'max', 'params': 'min'}
    records = [
        replace(record(i), objectives=both, performance={'acc': acc, 'params': params})
        for i, (acc, params) in enumerate([(0.5, 10), (0.9, 40), (0.4, 20), (0.8, 15)])
    ]
    Report(records).save(tmp_path)
    figure = study_page(tmp_path).split('Front of acc and params</b>')[1].split('</figure>')[0]
    assert len(re.search(r'<polyline class="line" points="([^"]*)"', figure)[1].split()) == 3
    assert figure.count('<circle') == 4


def test_what_matters_is_what_explains_the_scores():
    records = [record(i, float(i % 2)) for i in range(40)]
    for i, each in enumerate(records):
        each.hps['a.width'] = i // 13  # its groups differ by chance alone
    found = importance(records, ['kind', 'a.width', 'unknown'])
    assert found['kind'] == 1.0
    assert found['a.width'] == 0.0
    assert list(found) == ['kind', 'a.width']


@pytest.mark.parametrize('content', ['[]', '{}', '[1, {"step": 5}, {"step": "a"}]'])
def test_other_records_are_left_out(tmp_path, content):
    (tmp_path / REPORTS).write_text(content)
    assert readable_records(tmp_path) == []
    assert 'No trial has been recorded yet' in study_page(tmp_path)


def test_the_logs_of_other_folders_are_not_read(study, tmp_path):
    (secret,) = [path for path in study.glob('search/trials/0001/*') if path.is_dir()]
    secret.rename(tmp_path / 'secret')
    Report([replace(record(1, 0.9), work_dir=str(tmp_path / 'secret'))]).save(study)
    assert '"panels":[]' in study_page(study)
    Report([replace(record(1, 0.9), work_dir='/search/trials/0002/search_0002')]).save(study)
    assert '"panels":[]' not in study_page(study)  # a study that has been moved


@pytest.mark.parametrize(
    'change',
    [
        {'performance': {'acc': None}}, {'performance': {'acc': 10**400}}, {'performance': {'acc': 1e308}},
        {'start': math.nan}, {'end': math.inf}, {'objectives': {}}, {'objectives': {'loss': 'min'}},
        {'performance': {'loss': 1.0}, 'objectives': {'loss': 'min'}}, {'hps': {'lr': [[]]}}, {'hps': {EVIL: EVIL}},
    ],
)  # fmt: skip
def test_no_value_of_a_record_is_fatal(tmp_path, change):
    for number in (0, 2):
        Report([replace(each, **change) if each.number == number else each for each in RECORDS]).save(tmp_path)
        assert EVIL not in study_page(tmp_path)


def test_a_study_without_scores(tmp_path):
    Report([record(0, math.nan, 'failed'), replace(record(1), performance={}, status='running')]).save(tmp_path)
    text = study_page(tmp_path)
    assert 'Trials by worker' in text
    assert 'History' not in text


def test_a_damaged_study_is_a_usage_error(study, tmp_path, capsys):
    (tmp_path / REPORTS).write_text('[{"step": ')
    assert main(['report', str(tmp_path)]) == 2
    assert 'reports.json is damaged' in capsys.readouterr().err
    assert main(['report', str(study), str(study)]) == 2
    assert 'is a study: report it alone' in capsys.readouterr().err


def test_a_large_study_stays_below_two_megabytes(tmp_path):
    words = 'runnerkit train configs/some/config.py ' + '--cfg-options a.b=0.123456 ' * 10
    records = [
        replace(record(i, 1 / (i + 1)), command=words, hps={f'key.{k}': i * k for k in range(8)}) for i in range(1500)
    ]
    Report(records).save(tmp_path)
    assert len(study_page(tmp_path)) < 2e6


def test_a_study_in_the_browser(study, browser):
    act = """
      const rows = () => [...document.querySelectorAll('table')].at(-2).tBodies[0].rows;
      const button = [...document.querySelectorAll('table')].at(-2).querySelectorAll('th button')[2];
      button.click(); button.click();
      result = {name: button.textContent, first: rows()[0].cells[0].textContent,
        lines: document.querySelectorAll('#scores path.line').length, keys: document.querySelectorAll('.key b').length,
        colours: [...document.querySelectorAll('#scores path.line')].map((each) => each.style.stroke),
        title: document.title,
        nan: [...document.querySelectorAll('svg')].some((each) => each.innerHTML.includes('NaN')),
        wide: document.documentElement.scrollWidth - document.documentElement.clientWidth};
    """
    dom, found = browser(write_report(study), act, width=390)
    assert (found['name'], found['first']) == ('acc', '2')
    assert (found['lines'], found['keys']) == (4, 1)
    assert found['colours'].count('var(--soft)') == 2
    assert found['title'] == 'study'
    assert not found['nan']
    assert found['wide'] == 0
    assert 'Copy' in dom
