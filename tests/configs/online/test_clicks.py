"""One process sends ratings, another trains on them, and kills at random moments lose nothing."""

import json

import pytest
import torch
from support import benchmark

online = benchmark('online')


@pytest.fixture
def served(tmp_path):
    """The URL of a server with 3,200 ratings, all of them at once."""
    server, url = online.serve(tmp_path, 3200, 1e9)
    yield url
    server.kill()
    server.communicate()


@pytest.mark.thorough  # tests/data/test_stream.py
def test_it_learns_from_ratings_to_come(served, tmp_path):
    work_dir = tmp_path / 'run'
    assert online.ended(online.train(work_dir, served), 120) == 0, (tmp_path / 'run.out').read_text()
    (log,) = work_dir.glob('*.log.json')
    lines = [json.loads(line) for line in log.read_text().splitlines()][1:]
    assert [line['iter'] for line in lines] == [100]
    assert lines[0]['accuracy'] > 0.55  # of predictions made before the update
    assert online.acknowledged(tmp_path) == 3200
    times = online.times_in(work_dir)
    assert times[:3200].eq(1).all()
    assert times.sum() == 3200
    saved = torch.load(work_dir / 'latest.pth', weights_only=True)
    assert saved['meta']['iter'] == 100


@pytest.mark.thorough  # tests/data/test_stream.py
def test_kills_and_commands_at_random_moments_change_nothing(tmp_path):
    found = online.prove(tmp_path, kills=3, events=6000, rate=3000.0, seed=1, longest=0.6)
    assert found['kills'] == 3
    assert found['acknowledged'] == 6000


@pytest.mark.parametrize('wrong', ['lost', 'twice', 'early', 'other'])
def test_the_proof_sees_what_is_wrong(tmp_path, monkeypatch, wrong):
    """Trainings that end at once, with a checkpoint that is wrong."""

    class Server:
        kill = communicate = lambda self: None

    def served(folder, events, rate):
        (folder / 'acknowledged').write_text('19\n' if wrong == 'early' else '')
        return Server(), ''

    def trained(work_dir, url):
        times, other = torch.zeros(100_000, dtype=torch.int32), torch.zeros(2)
        times[:20] = 1
        if work_dir.name == 'killed':
            times[7] += {'lost': -1, 'early': -1, 'twice': 1, 'other': 0}[wrong]
            other[1] += wrong == 'other'
        work_dir.mkdir()
        torch.save({'meta': {}, 'state_dict': {'times': times, 'other': other}}, work_dir / 'latest.pth')
        return 0

    monkeypatch.setattr(online, 'serve', served)
    monkeypatch.setattr(online, 'train', trained)
    monkeypatch.setattr(online, 'ended', lambda pid, seconds: 0)
    monkeypatch.setattr(online, 'has_ended', lambda pid: True)
    monkeypatch.setattr(online, 'find_latest_checkpoint', lambda folder: folder / 'latest.pth')
    told = {'lost': 'lost or', 'twice': 'times', 'early': 'acknowledged, and trained on', 'other': 'weights differ'}
    with pytest.raises(RuntimeError, match=told[wrong]):
        online.prove(tmp_path, kills=0, events=20, rate=1.0)
