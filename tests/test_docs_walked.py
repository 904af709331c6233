"""Pages that are typed from top to bottom, as a reader would: every block, in one folder.

- A Python block whose first line is a comment with a file's name (``# my_data.py``) is written to that file. Any other
  is executed, with the names of those before it.
- The lines of a shell block are run one after the other. ``runnerkit`` is called in this process, which has imported
  torch already.
- A text block is what the blocks since the last text block have printed, as `printed.check_printed` compares them.
- A Python line whose comment begins with a value, as in ``result.scores  # {'loss': 0.05}``, has that value.
"""

import ast
import json
import re
import shlex
import subprocess
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
import torch
from printed import NUMBER, check_printed, same
from test_docs import BLOCK, ROOT, dedent, read
from test_docs_blocks import MNIST, NOT_RUN, called, shell, text_of  # noqa: F401  # a fixture

from runnerkit.data import DATASETS
from runnerkit.hooks import HOOKS
from runnerkit.nn import LOSSES, METRICS, MODELS
from runnerkit.optim import OPTIMIZER_BUILDERS, OPTIMIZERS
from runnerkit.utils.ending import DIFFERENT

REGISTRIES = (DATASETS, HOOKS, LOSSES, METRICS, MODELS, OPTIMIZERS, OPTIMIZER_BUILDERS)
FILE = re.compile(r'# (\w+\.(?:py|yaml))\n')
VALUE = re.compile(r"(\{.*?\}|\[.*?\]|'[^']*'|-?\d[\d.e+-]*(?![\w/]))")


def values_shown(code):
    """The expression and the text of each value that a comment of a Python block shows."""
    for line in code.splitlines():
        statement, _, comment = line.partition('  # ')
        shown = VALUE.match(comment)
        if shown and line[:1].strip():
            body = ast.parse(statement).body[0]
            if isinstance(body, ast.Assign) and isinstance(body.value, ast.Call):
                yield ast.unparse(body.targets[0]), shown[1]
            elif isinstance(body, ast.Expr) and isinstance(body.value, ast.Attribute | ast.Name | ast.Subscript):
                yield ast.unparse(body), shown[1]


def equals(value, shown):
    """Whether a value is the one that a comment shows; a path may be longer at its beginning."""
    literal = ast.literal_eval(shown)
    if isinstance(literal, str):
        return str(value).endswith(literal)
    numbers = re.findall(NUMBER, shown)
    found = re.findall(NUMBER, repr(value))
    return re.sub(NUMBER, '', shown) == re.sub(NUMBER, '', repr(value)) and all(map(same, numbers, found))


@pytest.fixture
def type_line(shell, tmp_path, monkeypatch, capsys):  # noqa: F811
    """Type a line of a shell block; returns what it has printed."""
    for registry in REGISTRIES:
        monkeypatch.setattr(registry, '_module_dict', dict(registry.module_dict))
    activate = f'source {tmp_path}/.venv/bin/activate'

    def run(line):
        words = shlex.split(line, comments=True)
        if not words or words[0] == 'source' or line.split('  #')[0].rstrip() in NOT_RUN:
            return ''
        if words[0] == 'cd':
            monkeypatch.chdir(words[1])
            return ''
        if words[0].endswith('runnerkit'):
            words[0] = 'runnerkit'
            code, printed = called(words, monkeypatch), capsys.readouterr()
            said = printed.err + printed.out  # as on a terminal: results come last
        else:
            command = ['bash', '-e', '-c', f'{activate}\n{line}']
            streams = dict(stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            done = subprocess.run(command, **streams, text=True, env=shell.environment)
            code, said = done.returncode, done.stdout
        assert code in (0, None) or (code == DIFFERENT and words[1] == 'diff'), f'{line}: {code}\n{said}'
        return said

    return run


@pytest.fixture
def walk(type_line):
    """Type a page in a folder of its own, without the section ``left_out``; returns the names of its Python blocks."""

    def run(page, left_out=None):
        names, said = {'__name__': '__main__'}, ''
        text = re.sub(left_out, '', read(page)) if left_out else read(page)
        for _, language, indented in BLOCK.findall(text):
            code = dedent(indented)
            named = FILE.match(code)
            if language == 'text':
                check_printed(code, said, page)
                said = ''
            elif language == 'bash':
                said += ''.join(map(type_line, code.splitlines()))
            elif named:
                Path(named[1]).write_text(code)
            else:
                assert language == 'python', f'{page}: say what language the block {code!r} is in'
                printed = StringIO()
                with redirect_stdout(printed):
                    exec(compile(code, page, 'exec'), names)
                said += printed.getvalue()
                for expression, shown in values_shown(code):
                    value = eval(expression, names)
                    assert equals(value, shown), f'{page}: {expression} is not {shown}, but {value!r}'
        return names

    return run


def write_table(rows=60, columns=13, classes=3):
    """A table whose last column is the class, and rows without classes."""
    random = np.random.default_rng(0)
    labels = np.arange(rows) % classes
    table = np.column_stack([random.normal(labels[:, None], 0.3, (rows, columns)), labels])
    np.savetxt('my_table.csv', table, '%.4f', delimiter=',')
    np.savetxt('my_new_rows.csv', table[:6, :-1], '%.4f', delimiter=',')


def test_printed_lines_are_compared():
    said = (
        'started\n2026-11-22 19:27:09 - INFO - Epoch [3][9/9]\tlr: 1.0e-02, time: 0.4, loss: 0.25\nScores in run_1/c\n'
    )
    check_printed('started\n…\n19:30:00 Epoch [3][9/9]  lr: 0.01, time: 2.1, loss: 0.2505\nScores in …/c', said, 'page')
    for wrong in (
        *('ended', 'Epoch [3][9/9] loss: 0.25', 'Scores in …\nstarted', 'Scores in run_x'),
        *('Epoch [1][9/9] …', 'Epoch … loss: 0.27', 'Epoch … lr: 1.2e-02, …'),
    ):
        with pytest.raises(AssertionError, match='page: '):
            check_printed(wrong, said, 'page')


@pytest.mark.thorough  # test_the_config_of_the_readme_starts; test_first_steps walks the same way
def test_the_readme(walk, tmp_path, monkeypatch):
    demo = 'runnerkit train configs/mnist/lenet.py --work-dir work_dirs/demo --cfg-options runner.max_epochs=1'
    called(demo.split(), monkeypatch)
    names = walk('README.md')
    assert (tmp_path / 'digits.csv').read_text().count('\n') == 1001
    assert len(names['labels']) == 500


def test_the_config_of_the_readme_starts(shell, monkeypatch):  # noqa: F811
    (config,) = (dedent(code) for _, _, code in BLOCK.findall(read('README.md')) if '# my_config.py' in code)
    Path('my_config.py').write_text(config)
    assert called(['runnerkit', 'train', 'my_config.py', '--dry-run'], monkeypatch) == 0


def test_configs(walk, tmp_path):
    for name in ('digits.py', 'networks.py'):
        (tmp_path / name).write_text((MNIST / name).read_text())
    walk('docs/configs.md')


def test_comparing_two_runs(walk):
    walk('docs/diff.md')


def test_first_steps(walk):
    walk('docs/tutorials/table.md')
    walk('docs/first_steps.md')


def test_replay(walk, type_line):
    for name in ('my_readings.py', 'readings.py'):
        Path(name).write_text(text_of('docs/tutorials/replay.md', f'# {name}'))
    type_line('runnerkit train readings.py')
    walk('docs/replay.md')


@pytest.mark.thorough  # test_first_steps walks the same way
def test_your_own_data_and_model(walk):
    write_table()
    walk('docs/your_own_data_and_model.md')


def last_scores(run):
    """The scores of the last evaluation in a work dir."""
    (log,) = Path('work_dirs', run).glob('*.log.json')
    return [row for row in map(json.loads, log.read_text().splitlines()) if row.get('mode') == 'val'][-1]


@pytest.mark.thorough  # tests/data/test_sampler.py
def test_unequal_samples(walk):
    walk('docs/unequal_samples.md')
    assert last_scores('texts')['accuracy'] > 0.95
    assert last_scores('boxes')['recall'] > 0.8
    boxes = json.loads(Path('boxes.json').read_text())
    assert {len(each['prediction']) for each in boxes} > {1, 2, 3}
    program = torch.export.load('texts.pt2').module()
    short, long = (program(torch.full((2, n), 1), torch.ones(2, n)) for n in (4, 90))
    assert torch.allclose(short, long, atol=1e-5)  # the mean of equal words
    assert short.argmax(1).tolist() == [1, 1]


@pytest.mark.thorough  # tests/data/test_sampler.py
def test_class_imbalance(walk):
    walk('docs/class_imbalance.md')
    keys = ('accuracy', 'recall_1', 'precision_1', 'balanced')
    told = {}
    for run, *numbers in re.findall(r'^\| `(\w+)` \|' + r' ([\d.]+) \|' * 4, read('docs/class_imbalance.md'), re.M):
        told[run] = [float(number) for number in numbers]
        assert [last_scores(run)[key] for key in keys] == pytest.approx(told[run], rel=0.005), run
    assert list(told) == ['plain', 'weighted', 'sampled']
    accuracy, recall, precision, _ = zip(*told.values())
    assert min(recall[1:]) > 0.8 > 0.3 > recall[0]  # what the page says of them
    assert max(precision[1:]) < precision[0]
    assert max(accuracy[1:]) < accuracy[0]


@pytest.mark.thorough  # tests/flow/test_from_python.py
def test_the_python_api(walk):
    names = walk('docs/python.md')
    assert min(names['errors'], key=names['errors'].get) == 0.1
    assert {'train', 'val'} == {record['mode'] for record in names['result'].history}
    assert names['result'].work_dir == Path('work_dirs/line_0.1').absolute()
    assert names['runner'].scores['loss'].iter == 45


#: Rows of the README's table of examples that take seconds: (config, metric, score).
EVALUATED = ('recommendation', 'speech')  # by the training itself
EXAMPLES = re.findall(r'\(configs/(\S+?)\) \| test (\w+) ([\d.]+) \| \d+ s \|', read('README.md'))


@pytest.mark.thorough  # tests/configs trains each of them for a part of its length
@pytest.mark.parametrize('config, metric, score', EXAMPLES)
def test_the_scores_of_the_examples(config, metric, score, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    options = [] if config.startswith('recommendation') else ['--work-dir', 'run']  # it has two work dirs
    called(['runnerkit', 'train', str(ROOT / 'configs' / config), *options], monkeypatch)
    said = capsys.readouterr()
    if not config.startswith(EVALUATED):
        called(['runnerkit', 'test', str(tmp_path / 'run')], monkeypatch)
        said = capsys.readouterr()
    found = re.findall(rf'(?i){metric}\W+(0\.\d+)', said.err + said.out)
    assert float(found[-1]) == pytest.approx(
        float(score), abs=0.015
    )  # 0.9005 on another processor than the README's, where it is 0.89


@pytest.mark.parametrize('page', ['README.md', 'README.zh-CN.md'])
def test_the_times_of_the_examples_are_those_of_the_gallery(page):
    rows = re.findall(r'\(configs/\w+/(\w+)\.\w+\).*\| (\d+) (?:s|秒)(\\\*)? \|', read(page))
    assert len(rows) == 8
    for name, seconds, star in rows:
        text = read(f'docs/gallery/{name}.md')
        assert f'Time: {seconds} s of CPU' in text, name
        assert ('These commands train less than the config says' in text) == bool(star), name


def test_the_readmes_have_the_same_blocks():
    def blocks(page):
        return [(language, code) for _, language, code in BLOCK.findall(read(page))]

    assert blocks('README.zh-CN.md') == blocks('README.md')


ENGINES = ('runnerkit', 'MMCV', 'MMEngine', 'Ignite', 'Accelerate', 'Lightning')


def ratios_of(results):
    """CPU time over that of the plain loop, by engine, as the tables of RESULTS.md have it."""
    found = {engine: [] for engine in ENGINES}
    columns = []
    for line in results.splitlines():
        cells = [cell.strip(' *') for cell in line.strip('|').split('|')]
        columns = cells if cells[0] == 'engine' else columns
        if cells[0] in ENGINES and 'CPU / plain' in columns:
            found[cells[0]].append(float(cells[columns.index('CPU / plain')].split()[0]))
    return found


def wrong_figures(text, results):
    """What a paragraph says of the benchmark and RESULTS.md does not: its ratios (runnerkit's where none is named)."""
    ratios, wrong = ratios_of(results), []
    for engine, figure in re.findall(rf'(?:({"|".join(ENGINES)})\W{{0,2}})?(?<![\d.])(\d+\.\d+)(?![\d.])', text):
        measured = ratios[engine or 'runnerkit']
        if figure not in [f'{ratio:.{len(figure.partition(".")[2])}f}' for ratio in measured]:
            wrong.append((engine, figure))
    (commit,) = re.findall(r'^at commit ([0-9a-f]{7,40})\b', results, flags=re.MULTILINE)
    named = re.findall(r'\b(?=[a-f]*\d)(?=\d*[a-f])[0-9a-f]{7,40}\b', text)
    return wrong + [other for other in named if other[:7] != commit[:7]]


@pytest.mark.parametrize('page', ['README.md', 'README.zh-CN.md'])
def test_the_figures_of_the_readme_are_those_of_the_benchmark(page):
    results = (ROOT / 'benchmarks' / 'RESULTS.md').read_text()
    (text,) = (part for part in read(page).split('\n\n') if 'benchmarks/RESULTS.md' in part)
    assert re.search(r'runnerkit\W{0,2}\d\.\d', text)
    assert wrong_figures(text, results) == []


def test_figures_of_another_measurement_are_found():
    results = (
        'at commit f088c57. A machine\n| engine | loop | CPU / plain |\n'
        '| **runnerkit** | epoch | 1.208 (1.1 to 1.3) |\n| Lightning | epoch | 5.49 (5 to 6) |\n'
    )
    for text in ('runnerkit 1.21, Lightning 5.49 (measured at f088c57)', 'It is 1.2 (Lightning: 5.5).'):
        assert wrong_figures(text, results) == []
    assert wrong_figures('runnerkit 1.22', results) == [('runnerkit', '1.22')]
    assert wrong_figures('Lightning 1.21, or 5.49', results) == [('Lightning', '1.21'), ('', '5.49')]
    assert wrong_figures('measured at 3b89ea8', results) == ['3b89ea8']
