from dataclasses import asdict

from runnerkit.runner.progress import Progress


def test_it_is_saved_as_it_stands_and_loaded_in_place():
    progress = Progress(epochs=3, iters=17, epoch_is_open=True, batches=2, samples=16, entry=1, units=4)
    state = progress.state_dict()
    assert state == asdict(progress)
    other = Progress(iters=5)
    other.load_state_dict(state)
    assert other == progress
    state['iters'] = 18
    assert progress.iters == other.iters == 17


def test_a_fresh_one_has_done_nothing():
    assert Progress().state_dict() == {
        'epochs': 0, 'iters': 0, 'epoch_is_open': False, 'batches': 0, 'samples': 0, 'entry': 0, 'units': 0
    }  # fmt: skip


def test_fields_that_a_state_lacks_begin_anew_and_others_are_ignored():
    progress = Progress(epochs=3, epoch_is_open=True, batches=2, samples=None)
    progress.load_state_dict({'epochs': 4, 'iters': 40, 'of a later version': 1})
    assert progress == Progress(epochs=4, iters=40)
