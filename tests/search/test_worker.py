"""The process of a trial: what it sends through its socket. tests/search/executors/test_local.py starts real ones."""

import socket
import threading

from studies import config_file

from runnerkit.search.worker import Link, main


def test_a_job_its_reports_and_its_result(tmp_path):
    ours, theirs = socket.socketpair()
    link, said = Link(ours), []

    def study():
        job = dict(number=0, config=str(config_file(tmp_path)), overrides={}, seed=3, objectives={'error': 'min'})
        link.send({**job, 'work_dir': str(tmp_path / 'run'), 'device': 'cpu', 'threads': 1})
        while 'result' not in (line := link.receive()):
            said.append(line)
            link.send({'prune': line['step'] == 2})
        said.append(line)

    thread = threading.Thread(target=study)
    thread.start()
    gone = threading.Event()
    main(theirs.detach(), gone.set)  # the real one would end this process
    thread.join(60)
    assert [line.get('step') for line in said] == [1, 2, None]
    assert said[-1]['result']['status'] == 'pruned'
    scores = [line['scores'] for line in said[:2]]
    assert said[-1]['result']['scores'] == min(scores, key=lambda each: each['error'])  # of the best checkpoint
    assert not gone.is_set()
    link.close()
    assert gone.wait(10)


def test_a_study_that_is_gone_before_it_sends_anything():
    ours, theirs = socket.socketpair()
    ours.close()
    assert main(theirs.detach()) is None


def test_half_a_line_is_none():
    ours, theirs = socket.socketpair()
    ours.sendall(b'{"number": 1')
    ours.close()
    assert Link(theirs).receive() is None
