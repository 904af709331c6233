"""Work dirs as runs leave them, written by hand."""

import json

import numpy as np

from runnerkit.utils.pictures import png_of

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


#: An entry of `run.json` as a run that was killed leaves it, and one that has completed.
KILLED = {
    'begin': 1000.0, 'iterations': 0, 'settings': [['optimizer.lr', '0.1', 'base.py:3', False]],
    'modules': [{'name': 'head', 'type': 'Linear', 'parameters': 1234, 'trainable': 0}],
}  # fmt: skip
COMPLETED = {
    **KILLED, 'begin': 2000.0, 'end': 2100.0, 'outcome': 'completed', 'iterations': 10,
    'settings': [*KILLED['settings'], ['seed', '7', '--cfg-options', True]],
    'exactness': ['the sampler <b>mine</b> has no state'],
}  # fmt: skip


def write_records(folder, starts=(KILLED, COMPLETED)):
    """`run.json`, predictions with pictures and reported pictures in the work dir ``folder``."""
    (folder / 'run.json').write_text(json.dumps({'version': 1, 'starts': list(starts)}))
    samples = []
    (folder / 'best_samples').mkdir()
    for i in range(30):
        wrong = i % 10 == 0
        picture = f'best_samples/20-{i}.png' if i % 2 == 0 else None
        sample = {'name': f'{i}.png', 'target': i % 3, 'prediction': (i + wrong) % 3, 'confidence': 0.75}
        samples.append({**sample, 'loss': float(wrong) + i / 100, 'picture': picture})
        if picture:
            (folder / picture).write_bytes(png_of(np.full((8, 8, 1), 8 * i, np.uint8)))
    about = {'score': 'acc', 'iterations': 20, 'classes': ['cat', 'dog', '<i>eel</i>'], 'samples': samples}
    (folder / 'best_predictions.json').write_text(json.dumps(about))
    (folder / 'reported_images').mkdir()
    for step in (10, 20, 30):
        (folder / 'reported_images' / f'a%2Fb_{step}.png').write_bytes(png_of(np.zeros((30, 40, 3), np.uint8)))
    return folder
