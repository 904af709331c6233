from runnerkit.runner.progress import Progress


def test_it_is_saved_as_it_is_and_loaded_in_place():
    progress = Progress(epoch=3, iter=16, iter_is_done=True, epoch_is_open=True, began=15, samples=16, entry=1, unit=4)
    progress.ended_at = 15
    state = progress.state_dict()
    assert state == {
        'epochs': 3, 'iters': 17, 'epoch_is_open': True, 'batches': 2, 'entry': 1, 'units': 4, 'ended_at': 15
    }  # fmt: skip
    other = Progress(iter=5)
    other.load_state_dict(state)
    assert (other.state_dict(), other.iter, other.iter_is_done) == (state, 17, False)


def test_a_fresh_one_has_done_nothing():
    assert Progress().state_dict() == {
        'epochs': 0, 'iters': 0, 'epoch_is_open': False, 'batches': 0, 'entry': 0, 'units': 0, 'ended_at': 0
    }  # fmt: skip


def test_fields_that_a_state_lacks_begin_anew_and_others_are_ignored():
    progress = Progress(epoch=3, epoch_is_open=True, samples=None)
    progress.load_state_dict({'epochs': 4, 'iters': 40, 'of a later version': 1})
    assert progress == Progress(epoch=4, iter=40)


def test_what_is_done_follows_from_what_runs():
    progress = Progress()
    progress.before_train_epoch(None)
    progress.after_train_iter(None)
    assert (progress.iter, progress.iters, progress.batches, progress.epochs) == (0, 1, 1, 0)
    progress.epoch_is_done = True
    progress.next_epoch()
    assert (progress.epoch, progress.epochs, progress.epoch_is_done) == (1, 1, False)


def test_the_counters_of_a_point():
    progress = Progress(epoch=1, iter=9, epoch_is_open=True, began=6)
    before = progress.state_dict()
    with progress.as_at('after_train_iter'):
        assert (progress.iter, progress.inner_iter, progress.iters) == (8, 2, 9)
    assert (progress.iter, progress.state_dict()) == (9, before)
    progress.close_epoch()
    with progress.as_at('after_train_epoch'):
        assert (progress.epoch, progress.epochs) == (0, 1)
    assert (progress.epoch, progress.epochs) == (1, 1)
