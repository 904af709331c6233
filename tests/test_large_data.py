"""The recipes of docs/large_data.md: each trains by its config on real files, and goes on exactly after a stop."""

import json
import os
import shutil
import subprocess
import sys
from importlib.util import find_spec

import pytest
from test_docs import ROOT
from test_docs_blocks import text_of

from runnerkit.data.reader import Reader

PAGE = 'docs/large_data.md'

#: What each recipe needs: packages, its files by their first lines, and what tells its config from the others.
RECIPES = {
    'arrow': (['datasets'], ['# write_arrow.py', '# arrow.py'], 'arrow.py:Rows'),
    'arrow as a stream': (
        ['datasets', 'torchdata'],
        ['# write_arrow.py', '# arrow_stream.py'],
        'arrow_stream.py:Stream',
    ),
    'shards': (['webdataset'], ['# write_shards.py', '# shards.py'], 'shards.py:digits'),
}

#: Trains for an epoch and a half, at once and in two runs. Prints whether the weights are the same, the order that the
#: checkpoint tells of, and what the second run has told.
DRIVER = """
import json, logging, runpy, sys
import torch
from runnerkit.cli.train import main

runpy.run_path(sys.argv[1])
told = []
keeper = logging.Handler()
keeper.setLevel('WARNING')
keeper.emit = lambda record: hasattr(record, 'exactness') and told.append(record.getMessage())
logging.getLogger('runnerkit').addHandler(keeper)
few = ['data.batch_size=250', 'evaluation=None', 'lr_config=None', 'checkpoint_config.interval=100']
last = {}
for name, parts in {'whole': [20], 'parts': [17, 20]}.items():
    for iters in parts:
        few_more = [*few, 'runner.max_iters=20']
        options = ['--device', 'cpu', '--auto-resume', '--stop-after', str(iters), '--cfg-options', *few_more]
        assert main([sys.argv[2], '--work-dir', name, *options]) == 0
    last[name] = torch.load(f'{name}/latest.pth', weights_only=True)
whole, parts = (each['state_dict'] for each in last.values())
same = all(torch.equal(value, parts[key]) for key, value in whole.items())
reader = last['parts']['runnerkit']['ranks'][0]['readers'][0]
print(json.dumps({'same': same, 'epoch': reader['epoch'], 'order': reader['about'].get('order'), 'told': told}))
"""


@pytest.mark.parametrize(
    'name',
    ['arrow', 'arrow as a stream', pytest.param('shards', marks=pytest.mark.thorough)],  # tests/data/test_stream.py
)
def test_a_recipe_goes_on_exactly(name, tmp_path):
    packages, files, data = RECIPES[name]
    missing = [package for package in packages if find_spec(package) is None]
    if missing:
        pytest.skip(f"{', '.join(missing)} not installed: pip install -e '.[large-data]'")
    shutil.copytree(ROOT / 'configs' / 'mnist', tmp_path / 'configs' / 'mnist')
    for first in (*files, '# large.py'):
        (tmp_path / first[2:]).write_text(text_of(PAGE, first))
    (tmp_path / 'config.py').write_text(text_of(PAGE, "_base_ = ['large.py']", data))
    config = 'config.py'
    if name == 'arrow':
        config = 'computed.py'
        (tmp_path / config).write_text(f"_base_ = ['config.py']\n{text_of(PAGE, 'data = dict(train_dataloader')}")
    own = {'PYTHONPATH': str(ROOT), 'OMP_NUM_THREADS': '1', 'CUDA_VISIBLE_DEVICES': '', 'HF_HOME': str(tmp_path / 'hf')}
    done = subprocess.run(
        [sys.executable, '-c', DRIVER, files[0][2:], config],
        cwd=tmp_path,
        env={**os.environ, **own},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    order = 'feistel' if name == 'arrow' else None
    assert found == {'same': True, 'epoch': 1, 'order': order, 'told': []}


@pytest.mark.parametrize('buffer', [None, 1, 16])
def test_a_stream_that_keeps_its_place_is_exact_but_for_a_shuffle_buffer(buffer):
    datasets = pytest.importorskip('datasets')
    loaders = pytest.importorskip('torchdata.stateful_dataloader')

    def reader():
        rows = datasets.Dataset.from_dict({'x': list(range(64))}).to_iterable_dataset(num_shards=4)
        rows = rows if buffer is None else rows.shuffle(seed=0, buffer_size=buffer)
        return Reader(loaders.StatefulDataLoader(rows.map(lambda row: row), 4))

    def rest(batches):
        return [batch['x'].tolist() for batch in batches]

    whole, resumed = reader(), reader()
    batches = whole.batches(0)
    first = [next(batches) for _ in range(5)]
    resumed.load_state_dict(whole.state_dict(len(first)))
    assert (rest(batches) == rest(resumed.batches(0))) is (buffer != 16)
