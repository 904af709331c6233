"""The sections of a report about one run."""

import json
import math
import re
from html import unescape

import pytest
import written_runs as made

from runnerkit.flow.report import one_run as module
from runnerkit.flow.report.page import page_of, write_runs
from runnerkit.flow.report.record import read_run


@pytest.fixture
def full(work_dir):
    """A work dir with all records."""
    return made.write_records(work_dir)


def cut(page, begin, end='<h'):
    """The text of ``page`` after a heading, without tags, and the names of its pictures."""
    part = page.split(f'>{begin}</h', 1)[1][2:].partition(end)[0]
    return ' '.join(unescape(re.sub(r'<[^>]*>', ' ', part)).split()), re.findall(r'alt="([^"]*)"', part)


def test_the_worst_and_the_best_samples_have_pictures(full):
    page = page_of([read_run(full)])
    text, worst = cut(page, 'Wrong, and highest loss')
    assert worst[:3] == ['20.png', '10.png', '0.png']
    assert '20.png ✗ <i>eel</i>, predicted cat (75%)' in text
    assert '28.png ✓ dog, predicted dog (75%)' in text
    assert re.findall(r'<figure class=(\w+)', page) == ['wrong'] * 3 + ['right'] * 12
    best = cut(page, 'Lowest loss')[1]
    assert best[:2] == ['2.png', '4.png']
    assert not set(best) & set(worst)
    assert '30 samples, 3 of them misclassified, best acc, after 20 iterations.' in page


def test_wrong_samples_are_first_even_with_a_lower_loss(full):
    path = full / 'best_predictions.json'
    content = json.loads(path.read_text())
    content['samples'][20]['loss'] = 0.001
    path.write_text(json.dumps(content))
    page = page_of([read_run(full)])
    assert cut(page, 'Wrong, and highest loss')[1][:4] == ['10.png', '0.png', '20.png', '28.png']
    right = [{**each, 'prediction': each['target']} for each in content['samples']]
    path.write_text(json.dumps({**content, 'samples': right}))
    text, names = cut(page_of([read_run(full)]), 'Highest loss')  # none is wrong
    assert (names[0], text[:13]) == ('10.png', '10.png ✓ dog,')
    for each in content['samples']:
        each['confidence'] = None  # numbers are neither right nor wrong
    path.write_text(json.dumps(content))
    page = page_of([read_run(full)])
    assert cut(page, 'Highest loss')[1][:2] == ['10.png', '0.png']
    assert '✗' not in cut(page, 'Highest loss')[0]


def test_a_list_of_contents_leads_to_each_section(full):
    page = page_of([read_run(full)])
    places = re.findall(r'<a href="#([^"]*)">', page)
    assert places == re.findall(r'<section id="([^"]*)">', page)
    assert 'predictions-of-the-best-evaluation' in places


def test_modules_without_parameters_are_folded(full):
    modules = [
        {'name': name, 'type': kind, 'parameters': n, 'trainable': n}
        for name, kind, n in (('a', 'Linear', 9), ('b', 'ReLU', 0))
    ]
    (full / 'run.json').write_text(json.dumps({'starts': [{'modules': modules}]}))
    text, _ = cut(page_of([read_run(full)]), 'Model')
    assert text == 'module type parameters trainable a Linear 9 9 1 modules without parameters module type b ReLU'


def test_classes_are_counted(full):
    page = page_of([read_run(full)])
    text, _ = cut(page, 'Confusion matrix')
    assert text == 'target \\ predicted cat dog <i>eel</i> cat 9 1 dog 9 1 <i>eel</i> 1 9'
    text, _ = cut(page, 'Classes')
    assert 'cat 10 0.9 0.9 0.9 dog (1)' in text


def test_samples_without_pictures_are_a_table(full):
    for path in (full / 'best_samples').iterdir():
        path.unlink()
    text, pictures = cut(page_of([read_run(full)]), 'Wrong, and highest loss')
    assert pictures == []
    assert text.startswith('sample target and prediction loss 20.png ✗ <i>eel</i>, predicted cat (75%) 1.2')


def test_reported_pictures_have_their_iteration_and_little_room(full, monkeypatch):
    text, names = cut(page_of([read_run(full)]), 'Reported pictures')
    assert names == ['a/b'] * 3
    assert text == 'a/b after 10 iterations a/b after 20 iterations a/b after 30 iterations'
    secret = full / 'secret.png'
    secret.write_bytes((full / 'reported_images' / 'a%2Fb_10.png').read_bytes())
    (full / 'reported_images' / 'a%2Fb_40.png').symlink_to(secret)
    (full / 'reported_images' / 'a%2Fb_50.png').write_text('no picture')
    for path in (full / 'best_samples').iterdir():
        path.unlink()
    monkeypatch.setattr(module, 'MOST_PICTURES', 200)
    text, _ = cut(page_of([read_run(full)]), 'Reported pictures')
    assert text == 'a/b after 20 iterations a/b after 30 iterations 3 more are in the work dir.'


def test_pictures_behind_a_link_are_not_shown(full, tmp_path):
    (full / 'reported_images').rename(tmp_path / 'elsewhere')
    (full / 'reported_images').symlink_to(tmp_path / 'elsewhere')
    assert cut(page_of([read_run(full)]), 'Reported pictures') == ('3 more are in the work dir.', [])
    (tmp_path / 'linked').symlink_to(full)  # a link to the work dir itself is
    assert len(cut(page_of([read_run(tmp_path / 'linked')]), 'Wrong, and highest loss')[1]) == 12


def test_predictions_of_another_program_are_no_harm(full):
    path = full / 'best_predictions.json'
    content = json.loads(path.read_text())
    for key, value in (('confidence', 10**400), ('loss', math.nan), ('loss', 10**400), ('target', None), ('name', {})):
        path.write_text(json.dumps({**content, 'samples': [{**content['samples'][0], key: value}]}))
        assert 'Predictions of the best evaluation' in page_of([read_run(full)])


def test_a_run_of_several_ranks_is_resumed_by_as_many(full):
    (full / 'run.json').write_text(json.dumps({'starts': [{'ranks': 2}]}))
    text, _ = cut(page_of([read_run(full)]), 'Commands')
    train = f'torchrun --nproc_per_node 2 -m runnerkit train {full}/net.py --work-dir {full} --auto-resume'
    assert f'resume {train} --launcher pytorch Copy' in text
    assert f'torchrun --nproc_per_node 2 -m runnerkit replay {full} --to 29 --launcher pytorch Copy' in text


def test_model_origins_exactness_and_starts(full):
    page = page_of([read_run(full)])
    assert cut(page, 'Model')[0] == 'module type parameters trainable head Linear 1,234 0'
    assert 'Set outside its base files: key value set at seed 7 --cfg-options Where' in cut(page, 'Config')[0]
    assert 'optimizer.lr 0.1 base.py:3' in cut(page, 'Config')[0]
    assert cut(page, 'Exactness of resumes')[0] == 'the sampler <b>mine</b> has no state'
    assert 'start 1 start 2' in cut(page, 'Starts of the run')[0]


def test_a_run_whose_resumes_are_exact(full):
    made.write_log(full, made.lines_of())
    (full / 'run.json').write_text('{"starts": [{"exactness": []}]}')
    assert cut(page_of([read_run(full)]), 'Exactness of resumes')[0] == 'The log names nothing that is not exact.'


def test_commands_resume_test_predict_and_replay(full):
    text, _ = cut(page_of([read_run(full)]), 'Commands')
    assert f'resume runnerkit train {full}/net.py --work-dir {full} --auto-resume Copy' in text
    for command in (f'test {full}', f'predict {full} test', f'replay {full} --to 29'):
        assert f'runnerkit {command} Copy' in text


@pytest.mark.parametrize(('ranks', 'start'), [(1, 'python'), (2, 'torchrun --nproc_per_node 2')])
def test_a_loop_of_the_users_is_resumed_by_its_script(ranks, start, full):
    words = {'command': ['mine.py', '--large'], 'folder': '/my code', 'ranks': ranks}
    (full / 'run.json').write_text(json.dumps({'starts': [words]}))
    run = read_run(full)
    run.meta['config'] = "loop = '/my code/mine.py:__main__'\n"
    text, _ = cut(page_of([run]), 'Commands')
    assert f"resume cd '/my code' && {start} mine.py --large Copy" in text
    assert 'runnerkit replay' in text
    assert not any(f'runnerkit {command}' in text for command in ('train', 'test', 'predict'))


@pytest.mark.parametrize(
    ('splits', 'commands'),
    [
        ('train=dict(type="A"), test=dict(type="B")', ['test {}', 'predict {} test']),
        ('train=dict(type="A"), val=dict(type="B")', ['test {} --split val', 'predict {} val']),
        ('samples_per_gpu=2', ['test {}', 'predict {} test']),
    ],
)
def test_commands_name_a_split_that_the_config_has(splits, commands, full):
    run = read_run(full)
    run.meta['config'] = f'data = dict({splits})\n'
    text, _ = cut(page_of([run]), 'Commands')
    assert [f'runnerkit {command.format(full)} Copy' in text for command in commands] == [True, True]


def test_predictions_of_a_best_evaluation_that_was_lost_are_not_shown(full):
    run = read_run(full)
    assert cut(page_of([run]), 'Predictions of the best evaluation')[0]
    assert run.best.step is not None
    content = json.loads((full / 'best_predictions.json').read_text())
    (full / 'best_predictions.json').write_text(json.dumps({**content, 'iterations': run.best.step + 1}))
    assert 'Predictions of the best evaluation' not in page_of([read_run(full)])


def test_a_page_has_room_for_no_more_than_two_megabytes(full):
    noise = (full / 'best_samples' / '20-0.png').read_bytes()
    for step in range(100):
        (full / 'reported_images' / f'large_{step}.png').write_bytes(noise + bytes(50_000))
    assert write_runs([full]).stat().st_size < 2e6
    assert 'more are in the work dir' in (full / 'report.html').read_text()


def test_the_page_shows_its_pictures_on_a_phone(full, browser):
    page = write_runs([full])
    act = """
      const pictures = [...document.images];
      result = {loaded: pictures.filter((each) => each.naturalWidth > 0).length, all: pictures.length,
        wide: document.documentElement.scrollWidth - document.documentElement.clientWidth, width: innerWidth,
        unnamed: pictures.filter((each) => !each.alt).length + [...document.querySelectorAll('button, select, input')]
          .filter((each) => !each.textContent && !each.closest('label') && !each.getAttribute('aria-label')).length,
        headings: [...document.querySelectorAll('h1, h2, h3')].map((each) => Number(each.tagName[1])),
        bold: document.querySelectorAll('main b b, main i i').length};
    """
    _, found = browser(page, act, width=390)
    assert found['loaded'] == found['all'] == 18
    assert found['wide'] == 0
    assert found['width'] <= 500
    assert found['unnamed'] == found['bold'] == 0
    assert found['headings'][0] == 1
    assert all(b - a <= 1 for a, b in zip(found['headings'], found['headings'][1:], strict=False))
