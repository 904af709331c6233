"""Everything that ranks do together, called once in each of two processes; the tests beside it look at the results."""

import os
import signal
import time
from datetime import timedelta

import torch
from torch import nn

from runnerkit import distributed as d
from runnerkit.utils.seed import set_random_seed
from runnerkit.utils.torch_versions import destroy_group


def mixed(rank):
    """Buffers of the kinds that models have, different on each rank."""
    return [
        torch.tensor([1.0, 2.0]) * (rank + 1),
        torch.tensor(3 + rank),
        torch.tensor([rank == 0, True]),
        torch.tensor([1 + 2j, 1j]) * (rank + 1),
        torch.tensor([[4.0]], dtype=torch.float64) * (rank + 1),
        torch.full((2, 3), float(rank)).t(),
    ]


def averaged(rank, **options):
    tensors = mixed(rank)
    d.allreduce_params(tensors, **options)
    return tensors


def broadcast_buffers(rank):
    """The buffers after the broadcast, of further types that gloo does not know, too; and how many messages it took."""
    more = [torch.full((3,), rank + 1, dtype=torch.int16), torch.full((2,), rank + 1.0).to(torch.float8_e4m3fn)]
    alone = [torch.full((2,), rank + 1.0)]
    tensors, calls, send = [*mixed(rank), *more, torch.zeros(0)], [], torch.distributed.broadcast
    torch.distributed.broadcast = lambda *args, **kwargs: (calls.append(1), send(*args, **kwargs))
    d.broadcast_buffers(tensors)
    d.broadcast_buffers(alone)
    torch.distributed.broadcast = send
    return [*tensors, *alone], len(calls)


def gradients(rank):
    model = nn.Linear(2, 1)
    model.bias.requires_grad_(False)
    unused = nn.Parameter(torch.zeros(1))
    model.weight.grad = torch.tensor([[1.0, 3.0]]) * (rank + 1)
    d.allreduce_grads([*model.parameters(), unused])
    return model.weight.grad, model.bias.grad, unused.grad


def draw():
    return torch.rand(1).item()


def named_sums(rank):
    """For each number of names: the sums if both ranks have them, and if the second rank has one more."""
    found = {}
    for number in (0, 1, 27, 28, 29, 30, 57, 58, 200):
        own = [{f'name{i}': (i * (rank + 1.0), 1.0) for i in range(many)} for many in (number, number + rank)]
        found[number] = [d.reduce_named_sums(each) for each in own]
    for number in (0, 30, 300):
        names = {f'name{i}': (i * (rank + 1.0), 1.0) for i in range(number)}
        own = [names, {**names, f'rank{rank}': (5.0, 1.0)}]
        found[f'{number} and a row'] = [d.reduce_named_sums_and_row(each, [rank, 2.0, 0.5]) for each in own]
    calls, reduce = [], torch.distributed.all_reduce
    torch.distributed.all_reduce = lambda *args, **kwargs: (calls.append(1), reduce(*args, **kwargs))
    for _ in range(2):
        d.reduce_named_sums({f'name{i}': (1.0, 1.0) for i in range(400)})  # more than before
    torch.distributed.all_reduce = reduce
    found['collectives'] = len(calls)
    found['other names'] = d.reduce_named_sums({'both': (1.0, 2.0), f'rank{rank}': (5.0, 1.0)})
    return found


def in_a_group(rank):
    group = torch.distributed.new_group(backend='gloo')
    found = d.broadcast_object(rank, group=group), d.all_gather_objects(rank, group)
    destroy_group(group)
    return found


def told(call):
    try:
        return call()
    except Exception as error:
        return repr(error)


def shifted_seed():
    set_random_seed(3, use_rank_shift=True)
    return draw()


def everything(rank, folder):
    part = list(range(rank, 7, 2))
    wrapped = d.master_only(lambda: 'did it')
    os.chdir(folder)
    results = {
        'info': d.get_dist_info(),
        'is_distributed': d.is_distributed(),
        'master_only': wrapped(),
        'reduce_sums': d.reduce_sums([rank + 0.5, 1.0, 2.0**40 + rank]),
        'named_sums': named_sums(rank),
        'slowest': d.reduce_and_find_slowest(
            {'time': (9.0 - 6 * rank, 3.0), 'data_time': (rank + 1.0, 1.0), 'a': (1, 1)}
        ),
        'slowest_of_some': d.reduce_and_find_slowest({} if rank else {'time': (4.0, 2.0)}),
        'reduce_extremes': d.reduce_extremes(10.0 - rank),
        'broadcast': d.broadcast_object({'from': rank}),
        'broadcast_from_1': d.broadcast_object([rank], src=1),
        'all_gather': d.all_gather_objects({'rank': rank}),
        'gather': d.gather_objects({'rank': rank}),
        'from_first': d.from_first_rank(lambda: {'called on': rank}),
        'from_first_failed': told(lambda: d.from_first_rank(lambda: {}['what is missing'])),
        'together': d.run_on_all_ranks(lambda: rank),
        'together_failed': told(lambda: d.run_on_all_ranks(lambda: {0: 'fine'}[rank])),
        'in_a_group': in_a_group(rank),
        'averaged': averaged(rank),
        'broadcast_buffers': broadcast_buffers(rank),
        'averaged_one_by_one': averaged(rank, coalesce=False),
        'averaged_in_buckets': averaged(rank, bucket_size_mb=1),
        'gradients': gradients(rank),
        'shifted_seed': shifted_seed(),
        'collect': d.collect_results(part, 7),
        'collect_cut': d.collect_results(part, 5),
        'collect_gpu': d.collect_results_gpu(part, 7),
        'collect_cpu': d.collect_results_cpu(part, 7),
        'collect_files': d.collect_results_cpu(part, 7, tmpdir=os.path.join(folder, 'parts')),
        'collect_nothing': d.collect_results([] if rank else ['only'], 1),
    }
    d.barrier()
    results['parts_removed'] = not os.path.exists(os.path.join(folder, 'parts'))
    results['cpu_group_of_gloo'] = d.cpu_group() is torch.distributed.group.WORLD
    # As with a backend that does not move what lies in the host's memory.
    from runnerkit.distributed import groups as module

    module.dist = NotGloo()
    results['collect_other_backend'] = d.collect_results_cpu(part, 7)
    results['cpu_group'] = (d.cpu_group() is torch.distributed.group.WORLD, d.cpu_group() is d.cpu_group())
    d.barrier()
    results['left_over'] = sorted(os.listdir(folder))
    results['failed'] = failed(rank)
    results['waited'] = waited(rank)
    return results


class NotGloo:
    """torch.distributed that calls its backend another name."""

    def __getattr__(self, name):
        return getattr(torch.distributed, name)

    @staticmethod
    def get_backend():
        return 'other'


def failed(rank):
    """What the ranks learn that wait for a first one that fails, and that the next broadcast is as ever."""
    d.tell_failure(ValueError('the ranks have not met: nobody is told'))
    d.meet_patiently()
    if rank == 0:
        d.tell_failure(ValueError('a text that is long ' + 'é' * 5000))
        return d.broadcast_patiently('goes on')
    d.tell_failure(ValueError('nobody hears the others'))
    return told(lambda: d.broadcast_patiently(None)), d.broadcast_patiently(None)


def waited(rank):
    """Rank 1 waits for longer than the default group would, until its signal handler has told rank 0 to go on."""
    from torch.distributed.distributed_c10d import _set_pg_timeout

    d.barrier()
    _set_pg_timeout(timedelta(seconds=0.2), torch.distributed.group.WORLD)
    if rank == 1:
        signal.signal(signal.SIGALRM, lambda *_: open('go', 'w').close())
        signal.setitimer(signal.ITIMER_REAL, 1.5)
    while rank == 0 and not os.path.exists('go'):
        time.sleep(0.01)
    return d.broadcast_patiently({'from': rank}), os.path.exists('go')
