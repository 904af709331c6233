"""Running a function of a test file in several real processes that talk through gloo."""

import importlib.util
import os
import sys
import tempfile
import traceback
from pathlib import Path

import torch
from torch import multiprocessing as mp

#: Processes are forked from one that has imported this, which takes each of them seconds otherwise.
PRELOADED = [
    'torch._dynamo',
    'torchmetrics',
    'pytest',
    'runnerkit.flow',
    'torch.distributed.checkpoint',
    'matplotlib.figure',
    'runnerkit.flow.look.curve',
]
# Here, since whoever starts the first of them, starts the one from which all are forked.
mp.set_forkserver_preload(PRELOADED)


def on_ranks(path, name, *args, world_size=2):
    """What the function ``name`` of the file ``path``, called as ``name(rank, *args)``, returns on each rank."""
    with tempfile.TemporaryDirectory() as folder:
        arguments = (str(path), name, args, world_size, folder)
        mp.start_processes(_process, arguments, nprocs=world_size, start_method='forkserver')
        return [torch.load(os.path.join(folder, f'{rank}.pth'), weights_only=False) for rank in range(world_size)]


def _leave_out_what_conftest_does():
    import pictures
    import pytest

    patch = pytest.MonkeyPatch()
    pictures.leave_out(patch)
    patch.setattr(os, 'fsync', lambda file: None)


def _process(rank, path, name, args, world_size, folder):
    from runnerkit.distributed import init_dist, shutdown

    torch.set_num_threads(1)
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world_size))
    sys.path.insert(0, str(Path(__file__).parent))
    _leave_out_what_conftest_does()
    # The processes meet through a file, so that no port can be taken by another program.
    init_dist(
        'pytorch', backend='gloo', init_method=f'file://{folder}/meet', rank=rank, world_size=world_size, timeout=60
    )
    torch.distributed.barrier()  # or one that is done at once leaves while another one still connects to it
    spec = importlib.util.spec_from_file_location(f'on_ranks_{Path(path).stem}', path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    try:
        torch.save(getattr(module, name)(rank, *args), os.path.join(folder, f'{rank}.pth'))
    except Exception:
        traceback.print_exc()
        raise
    finally:
        shutdown()
