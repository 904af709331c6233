"""The report as one file: what is in it, and what a browser makes of it."""

import json
import math
import re

import pytest
import written_runs as made

import runnerkit
from runnerkit.flow.report.comparison import runs
from runnerkit.flow.report.page import MOST_PANELS, page_data, page_of
from runnerkit.flow.report.record import read_run
from runnerkit.search.study_page import write_report

EVIL = '</script><script>document.title="run"</script><img src=x onerror=\'document.title="run"\'>&<!--'


def data_in(page):
    """The data block of a page."""
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page.read_text())[1])


def test_a_report_is_one_file_that_loads_nothing(work_dir):
    page = write_report(work_dir)
    assert page == work_dir / 'report.html'
    text = page.read_text()
    assert re.findall(r'\b(?:src|href)=(?!"#)|@import|url\([^#]', text) == []
    assert 'http' not in text.replace('http-equiv', '').replace('http://www.w3.org/', '')
    for part in (
        'completed',
        'the disk is nearly full',
        'Where the time goes',
        f'runnerkit test {work_dir}',
        'Python: 3',
    ):
        assert part in text
    assert [panel['title'] for panel in data_in(page)['panels']] == ['loss', 'acc', 'lr', 'time', 'data_time']
    assert data_in(page)['runs'][0]['marks'] == [{'step': 20, 'kind': 'best', 'text': 'best acc 0.6667'}]


def test_the_package_has_the_functions():
    assert runnerkit.write_report is write_report
    assert runnerkit.runs is runs


def test_several_runs_are_compared(work_dir, tmp_path):
    other = made.write_log(tmp_path / 'other', made.lines_of(loss=2.0), seed=1)
    page = write_report([work_dir, other], tmp_path / 'out' / 'both.html')
    text = page.read_text()
    assert '2 runs' in text
    assert 'What differs in their configs' in text
    assert 'Runs that differ by their seed alone' in text
    assert {series['run'] for panel in data_in(page)['panels'] for series in panel['series']} == {0, 1}


def test_the_best_run_and_cells_are_marked_and_settings_have_axes(work_dir, tmp_path):
    other = made.write_log(tmp_path / 'other', made.lines_of(loss=0.5), config=made.CONFIG.replace('0.1', '0.2'))
    (other / 'best_acc_epoch_3.pth').write_bytes(b'never read')
    text = page_of([read_run(work_dir), read_run(other)])
    assert re.findall(r'<th scope=row class="best"[^>]*>([^<]*)', text) == ['★ other']
    assert re.findall(r'<td class="n best"[^>]*>([^<]*)', text) == ['0.875', '0.875']  # best, and last
    lines = re.findall(r'<polyline class="(\w*)" style="[^"]*stroke:var\((--c\d)\)', text)
    assert lines == [('', '--c1'), ('best', '--c0')]
    assert 'Settings and best acc: 2 lines over optimizer.lr, best acc' in text  # not the seed


def test_the_runs_are_named_once_for_all_charts(work_dir, tmp_path, browser):
    other = made.write_log(tmp_path / 'other', made.lines_of(loss=2.0))
    act = """
      document.querySelector('figure svg').dispatchEvent(new KeyboardEvent('keydown', {key: 'End'}));
      result = {keys: [...document.querySelectorAll('.key')].map((each) => each.textContent.trim()),
        titles: [...document.querySelectorAll('.key')].map((each) => each.title),
        status: document.getElementById('status').textContent};
    """
    _, found = browser(write_report([work_dir, other], tmp_path / 'page.html'), act)
    assert not any('run' in each or 'other' in each for each in found['keys'])
    assert set(found['titles']) == {'run', 'other'}
    assert found['status'].startswith('iterations 30: run 0.03333')


def test_texts_of_a_run_are_escaped(tmp_path):
    lines = [{'mode': 'train', 'epoch': 1, 'iter': 1, 'step': 1, EVIL: 1.0}]
    text = made.TEXT.replace('the disk', EVIL)
    folder = made.write_log(tmp_path / 'run', lines, config=f'a = {EVIL!r}', text=text)
    (folder / 'run.json').write_text(
        json.dumps(
            {
                'starts': [
                    {
                        'outcome': EVIL,
                        'command': [EVIL],
                        'settings': [[EVIL] * 4],
                        'modules': [{'name': EVIL}],
                        'exactness': [EVIL],
                    }
                ]
            }
        )
    )
    found = page_of([read_run(folder)])
    assert EVIL not in found
    assert found.count('<script') == 2
    assert found.count('<img') == 0
    assert json.loads(re.search(r'id="data">(.*?)</script>', found)[1])['panels'][0]['title'] == EVIL


def test_moments_of_a_run(tmp_path):
    rates = [0.1] * 4 + [0.01] * 4
    lines = [{'mode': 'train', 'epoch': 1, 'iter': i, 'step': i, 'lr': rate} for i, rate in enumerate(rates, 1)]
    lines[-1]['loss'] = math.nan
    found = read_run(made.write_log(tmp_path, lines)).marks
    assert found == [(5, 'rate', 'learning rate 0.1 → 0.01'), (8, 'nan', 'train loss is not finite')]


def test_a_run_without_values_has_a_report(tmp_path):
    folder = made.write_log(tmp_path, [], text='')
    assert 'No values have been logged yet' in page_of([read_run(folder)])


def test_what_cannot_be_reported(tmp_path):
    with pytest.raises(ValueError, match='at least one work dir'):
        write_report([])
    with pytest.raises(FileNotFoundError, match='is no work dir of a run'):
        write_report(tmp_path)


def test_many_curves_stay_small(tmp_path):
    lines = [
        {'mode': 'train', 'epoch': 1, 'iter': i, 'step': i, **{f'loss_{n}': i / (n + 1) for n in range(60)}}
        for i in range(1, 1001)
    ]
    run = read_run(made.write_log(tmp_path, lines))
    assert len(json.dumps(page_data([run] * 5))) < 1.5e6


def test_a_page_has_an_end_of_charts(tmp_path):
    classes = {f'AP/{n}': n / 1000 for n in range(1203)}
    lines = [{'mode': 'val', 'epoch': i, 'iter': 1, 'step': i, **classes, 'lr': 0.1} for i in range(11, 23)]
    data = page_data([read_run(made.write_log(tmp_path, [*made.lines_of(1), *lines]))])
    assert len(data['panels']) == MOST_PANELS
    assert data['left'] == 1203 + 5 - MOST_PANELS  # with loss, lr, time, data_time and acc
    assert data['panels'][0]['title'] == 'loss'


def test_no_value_of_a_file_is_fatal(work_dir):
    odd = [
        None,
        True,
        -1,
        10**400,
        1e308,
        math.nan,
        math.inf,
        'text',
        EVIL,
        [],
        [1, [2]],
        {},
        {'a': {'b': 1}},
        '',
        [[]],
    ]
    keys = (
        'begin',
        'end',
        'outcome',
        'reason',
        'host',
        'command',
        'git',
        'seconds',
        'data',
        'settings',
        'modules',
        'exactness',
        'parameters',
    )
    names = ('epoch', 'iter', 'step', 'lr', 'loss', 'time', 'data_time', 'acc', 'timestamp', 'lr_groups')
    for value in odd:
        (work_dir / 'run.json').write_text(json.dumps({'starts': [dict.fromkeys(keys, value)]}))
        lines = [{'mode': mode, 'step': 1, name: value} for name in names for mode in ('train', 'val', EVIL)]
        meta = dict.fromkeys(('config', 'env_info', 'seed', 'exp_name'), value)
        made.write_log(work_dir, [*made.lines_of(), meta, *lines], stamp='20260102_100000')
        run = read_run(work_dir)
        assert page_of([run])
        assert page_of([run, run])


# --- in a browser -----------------------------------------------------------------------------------------------------


def test_the_page_draws_every_panel(work_dir, browser):
    act = """
      const svgs = [...document.querySelectorAll('figure svg')];
      result = {
        lines: svgs.map((each) => each.querySelectorAll('path.line').length),
        labels: svgs.map((each) => each.getAttribute('aria-label')),
        axes: [...document.getElementById('axis').options].map((each) => each.value),
        marks: svgs[0].querySelectorAll('.mark title')[0].textContent,
        nan: svgs.some((each) => each.innerHTML.includes('NaN')),
      };
    """
    _, found = browser(write_report(work_dir), act)
    assert found['lines'] == [1, 1, 1, 1, 1]
    assert found['labels'][0] == 'loss: last values train 0.03333. Arrow keys move the cursor.'
    assert found['axes'] == ['step', 'epoch', 'time']
    assert found['marks'] == 'best acc 0.6667'
    assert not found['nan']


def test_the_rates_of_several_groups_have_colours_of_their_own(tmp_path, browser):
    lines = [{'mode': 'train', 'epoch': 1, 'iter': i, 'step': i, 'lr': {'a': 0.1, 'b': 0.2}} for i in range(1, 5)]
    act = "result = [...document.querySelectorAll('path.line')].map((each) => each.style.stroke);"
    _, found = browser(write_report(made.write_log(tmp_path / 'run', lines)), act)
    assert len(set(found)) == 2


def test_controls_and_keys_change_all_panels(work_dir, browser):
    act = """
      const get = (id) => document.getElementById(id);
      const change = (id, set, kind) => { set(get(id)); get(id).dispatchEvent(new Event(kind)); };
      const path = () => document.querySelector('figure svg path.line').getAttribute('d');
      const keys = () => [...document.querySelectorAll('.key b')].map((each) => each.textContent);
      const drawn = [path()];
      change('log', (node) => { node.checked = true; }, 'change'); drawn.push(path());
      change('smooth', (node) => { node.value = 0.9; }, 'input'); drawn.push(path());
      change('smooth', (node) => { node.value = 0; }, 'input');
      change('axis', (node) => { node.value = 'epoch'; }, 'change');
      const svg = document.querySelector('figure svg');
      svg.dispatchEvent(new KeyboardEvent('keydown', {key: 'Home'}));
      svg.dispatchEvent(new KeyboardEvent('keydown', {key: 'ArrowRight'}));
      result = {different: new Set(drawn).size, keys: keys(), status: document.getElementById('status').textContent,
        cursors: document.querySelectorAll('.cursor').length, name: document.getElementById('axis-name').textContent};
    """
    _, found = browser(write_report(work_dir), act)
    assert found['different'] == 3
    assert found['keys'][:2] == ['0.1', '0.5']  # of the tenth iteration, and of the evaluation behind it
    assert found['status'] == 'epochs 1: train 0.1'
    assert (found['cursors'], found['name']) == (5, 'epochs')


def test_tables_are_sorted_and_runs_hidden(work_dir, tmp_path, browser):
    others = [made.write_log(tmp_path / name, made.lines_of(loss=loss)) for name, loss in (('a', 0.5), ('b', 2.0))]
    act = """
      const button = document.querySelectorAll('table th button')[3];
      const table = document.querySelector('table');
      const column = () => [...table.tBodies[0].rows].map((row) => row.cells[0].textContent);
      button.click(); const up = column(); button.click();
      const box = document.querySelector('input[data-run]');
      box.checked = false; box.dispatchEvent(new Event('change'));
      result = {name: button.textContent, up, down: column(), sort: button.parentNode.getAttribute('aria-sort'),
        lines: document.querySelector('figure svg').querySelectorAll('path.line').length};
      for (const each of document.querySelectorAll('input[data-run]')) {
        each.checked = false; each.dispatchEvent(new Event('change'));  // with no run left, nothing fails
      }
      document.querySelector('figure svg').dispatchEvent(new PointerEvent('pointermove', {clientX: 99}));
    """
    _, found = browser(write_report([work_dir, *others], tmp_path / 'page.html'), act)
    assert found == {
        'name': 'last acc', 'up': ['b', 'run', 'a'], 'down': ['a', 'run', 'b'], 'sort': 'descending', 'lines': 2,
    }  # fmt: skip


def test_a_diverged_run_is_drawn_and_nothing_of_it_is_executed(tmp_path, browser):
    lines = [
        {'mode': 'train', 'epoch': 1, 'iter': i, 'step': i, 'loss': math.nan if i > 5 else 1.0 / i, EVIL: 1.0}
        for i in range(1, 11)
    ]
    folder = made.write_log(tmp_path / 'folder', lines, text=made.TEXT.replace('the disk', EVIL))
    dom, _ = browser(write_report(folder))
    assert '<title>folder</title>' in dom
    assert '✕' in dom
    assert 'not finite' in dom


def test_a_curve_that_leaves_its_chart_is_marked(tmp_path, browser):
    lines = [
        {'mode': 'val', 'epoch': i, 'iter': 1, 'step': i, 'acc': 0.1 if i == 1 else 0.9 + i / 1000, 'even': i}
        for i in range(1, 21)
    ]
    act = """
      const marks = () => [...document.querySelectorAll('.cut')].map((each) => each.firstChild.textContent);
      const found = [marks()];
      const svg = document.querySelector('figure svg');
      svg.dispatchEvent(new KeyboardEvent('keydown', {key: 'Home'}));
      const dot = Number(svg.querySelector('.dot').getAttribute('cy'));
      document.getElementById('log').checked = true;
      document.getElementById('log').dispatchEvent(new Event('change'));
      result = {marks: [...found, marks()], dot, titles: [...document.querySelectorAll('figcaption > b')].length};
    """
    _, found = browser(write_report(made.write_log(tmp_path / 'run', lines)), act)
    assert found['marks'] == [['▼ 0.1'], []]  # the logarithmic axis shows all
    assert found['dot'] == 180  # the cursor's dot is at the edge, not below the page


def test_numbers_at_the_limits_of_floats_do_not_stop_the_browser(tmp_path, browser):
    rows = [
        {'counter': 2**53 - 2 + i % 2, 'wide': (-1) ** i * 1.7e308, 'tiny': 1e-320 * i, 'one': 1e300}
        for i in range(1, 2001)
    ]
    lines = [{'mode': 'train', 'epoch': 1, 'iter': i, 'step': i, **row} for i, row in enumerate(rows, 1)]
    dom, found = browser(
        write_report(made.write_log(tmp_path / 'run', lines)), "result = document.querySelectorAll('path.line').length"
    )
    assert found == 4
    assert 'NaN' not in dom.partition('<script')[0]
