"""A small pipeline that many tests share."""

from pathlib import Path

from plans import CONFIG
from studies import config_file

from runnerkit.search.pipeline import Pipeline

DATA = {**CONFIG['data'], 'test': {'type': 'support.Noisy', 'length': 6}}


def sections(folder, **changes):
    """The config of a pipeline of a search with two objectives, the training of its front, and a benchmark.

    Args:
        folder: of the trials' config.
        **changes: of the sections, by name: dicts that are merged in, or None to leave the step out.
    """
    found = {
        'nas': dict(
            pipe_step=dict(type='SearchPipeStep'),
            config=str(config_file(folder, data=DATA)),
            objectives=dict(error='min', params='min'),
            search_space={
                'optimizer.lr': dict(type='Float', low=1e-3, high=1e-1, log=True),
                'data.samples_per_gpu': [2, 4],
            },
            search_algorithm=dict(type='NSGA2', trials=4),
            quota='params < 1e3 and flops < 1e6',
            seed=3,
        ),
        'fullytrain': dict(pipe_step=dict(type='TrainPipeStep'), overrides={'runner.max_epochs': 4}, repeats=2),
        'benchmark': dict(pipe_step=dict(type='BenchmarkPipeStep'), latency=dict(rounds=3, warmup=1)),
    }
    for name, change in changes.items():
        if change is None:
            del found[name]
        else:
            found[name] = {**found.get(name, {}), **change}
    return {'pipeline': list(found), **found}


def small_pipeline(folder, **changes):
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    return Pipeline(sections(folder, **changes), folder / 'work')
