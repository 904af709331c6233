"""Work dirs as runs leave them, written by hand."""

import json

CONFIG = "seed = {seed}\noptimizer = dict(type='SGD', lr=0.1)\nwork_dir = '/somewhere/{seed}'\n"

TEXT = """2026-01-01 10:00:00,000 - runnerkit - INFO - Training Net (9 parameters, SGD) for 3 epochs
2026-01-01 10:00:01,500 - runnerkit - WARNING - the disk is nearly full
and a second line
2026-01-01 10:00:02,000 - runnerkit - WARNING - the disk is nearly full
and a second line
2026-01-01 10:01:00,000 - runnerkit - INFO - Run completed
"""


def lines_of(epochs=3, first=1, loss=1.0):
    """Log lines of epochs of ten iterations."""
    for epoch in range(first, epochs + 1):
        for inside in (5, 10):
            step = 10 * (epoch - 1) + inside
            values = {'lr': 0.1, 'loss': loss / step, 'time': 0.5, 'data_time': 0.1}
            yield {'mode': 'train', 'epoch': epoch, 'iter': inside, 'step': step, **values}
        yield {'mode': 'val', 'epoch': epoch, 'iter': 4, 'step': 10 * epoch, 'lr': 0.1, 'acc': 1 - loss / (1 + epoch)}


def write_log(folder, lines, seed=0, stamp='20260101_100000', text=TEXT, config=CONFIG):
    """A work dir with one log of each kind."""
    folder.mkdir(parents=True, exist_ok=True)
    meta = {'config': config.format(seed=seed), 'seed': seed, 'env_info': 'Python: 3\n  - detail', 'exp_name': 'net.py'}
    rows = [json.dumps(each) + '\n' for each in (meta, *lines)]
    (folder / f'{stamp}.log.json').write_text(''.join(rows))
    if text:
        (folder / f'{stamp}.log').write_text(text)
    return folder
