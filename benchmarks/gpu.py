"""Compare runnerkit with the plain loop on a GPU: throughput, host waits, gaps between kernels, prefetching.

    python benchmarks/gpu.py                          # prints tables; without a GPU only a message; exits with 0
    python benchmarks/gpu.py --device cpu --smoke     # the same code with tiny sizes: its figures mean nothing

Two models: ResNet-50, whose kernels are long, and 100 small linear layers, whose kernels are so short that the GPU
waits for the host, which makes an engine's overhead visible. The runner has its five default hooks and logs every 50
iterations. A host wait is any call that torch.cuda.set_sync_debug_mode reports; they are counted between two log lines.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import DeviceType
from torch.nn.functional import cross_entropy
from torch.profiler import ProfilerActivity, profile
from torch.utils.data import Dataset

from runnerkit.data import build_dataloader
from runnerkit.runner import EpochBasedRunner
from runnerkit.utils import get_logger

LOG_EVERY = 50
CLASSES = 10


class Bottleneck(nn.Module):
    """ResNet's block of three convolutions: `[n, inputs, h, w]` to `[n, 4 * width, h / stride, w / stride]`."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = 4 * width
        self.body = nn.Sequential(
            *conv(inputs, width, 1), nn.ReLU(inplace=True),
            *conv(width, width, 3, stride), nn.ReLU(inplace=True),
            *conv(width, outputs, 1),
        )  # fmt: skip
        same = stride == 1 and inputs == outputs
        self.shortcut = nn.Identity() if same else nn.Sequential(*conv(inputs, outputs, 1, stride))

    def forward(self, x: Tensor) -> Tensor:
        return (self.body(x) + self.shortcut(x)).relu()


def conv(inputs: int, outputs: int, size: int, stride: int = 1) -> list[nn.Module]:
    return [nn.Conv2d(inputs, outputs, size, stride, size // 2, bias=False), nn.BatchNorm2d(outputs)]


def resnet(depths: Iterable[int] = (3, 4, 6, 3), width: int = 64) -> nn.Module:
    """ResNet-50 by default: images `[n, 3, h, w]` to `[n, CLASSES]`."""
    layers: list[nn.Module] = [*conv(3, width, 7, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
    inputs = width
    for stage, depth in enumerate(depths):
        for block in range(depth):
            layers.append(Bottleneck(inputs, width * 2**stage, 2 if stage and not block else 1))
            inputs = 4 * width * 2**stage
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, CLASSES))


def small_kernels(layers: int = 100) -> nn.Module:
    """Many small layers: `[n, 32]` to `[n, CLASSES]`."""
    body = [each for _ in range(layers) for each in (nn.Linear(32, 32), nn.ReLU())]
    return nn.Sequential(*body, nn.Linear(32, CLASSES))


class Samples(Dataset[Any]):
    """The same few random samples, repeated."""

    def __init__(self, shape: tuple[int, ...], length: int) -> None:
        self.x = torch.randn(64, *shape)
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self.x[index % 64], index % CLASSES


@dataclass
class Case:
    """A model with its batches.

    Args:
        name: the name in the tables.
        build: builds the model.
        shape: the shape of one sample.
        batch: samples per batch.
        iterations: iterations of one training.
        warmup: initial iterations that are not measured.
        device: the device.
    """

    name: str
    build: Callable[[], nn.Module]
    shape: tuple[int, ...]
    batch: int
    iterations: int
    warmup: int
    device: torch.device

    def batches(self) -> list[Any]:
        """One batch, repeated for each iteration; in pinned memory if there is a GPU."""
        x, y = torch.randn(self.batch, *self.shape), torch.randint(CLASSES, (self.batch,))
        pinned = (x.pin_memory(), y.pin_memory()) if self.device.type == 'cuda' else (x, y)
        return [pinned] * self.iterations

    def loader(self, prefetch: bool, workers: int = 4) -> Any:
        """A loader of samples, with or without prefetching of its batches."""
        cuda = self.device.type == 'cuda'
        dataset = Samples(self.shape, self.batch * self.iterations)
        ahead = {'prefetch_to': self.device} if prefetch and cuda else {}
        return build_dataloader(dataset, self.batch, workers if cuda else 0, seed=0, pin_memory=cuda, **ahead)


class Ticks:
    """Calls functions at some iterations, from the loss, which all loops call once per iteration."""

    def __init__(self, actions: dict[int, Callable[[], None]]) -> None:
        self.actions = actions
        self.count = 0

    def __call__(self, logits: Tensor, classes: Tensor) -> Tensor:
        self.count += 1
        if self.count in self.actions:
            self.actions[self.count]()
        return cross_entropy(logits, classes)


def by_hand(case: Case, loader: Any, loss_of: Ticks) -> None:
    """The plain loop."""
    model = case.build().to(case.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    model.train()
    for x, y in loader:
        x, y = x.to(case.device, non_blocking=True), y.to(case.device, non_blocking=True)
        optimizer.zero_grad()
        loss_of(model(x), y).backward()
        optimizer.step()


class Step(nn.Module):
    """The model with the runner's step."""

    def __init__(self, case: Case, loss_of: Ticks) -> None:
        super().__init__()
        self.net, self.loss_of, self.device = case.build().to(case.device), loss_of, case.device

    def train_step(self, data: Any, optimizer: Any) -> dict[str, Any]:
        x, y = (each.to(self.device, non_blocking=True) for each in data)
        loss = self.loss_of(self.net(x), y)
        return {'loss': loss, 'log_vars': {'loss': loss}, 'num_samples': len(x)}


def by_runner(case: Case, loader: Any, loss_of: Ticks) -> None:
    """EpochBasedRunner with its five default hooks."""
    model = Step(case, loss_of)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    logger = get_logger('runnerkit', log_level='ERROR')
    with tempfile.TemporaryDirectory() as folder:
        runner = EpochBasedRunner(model, optimizer=optimizer, work_dir=folder, logger=logger, max_epochs=1)
        runner.register_training_hooks(
            lr_config={'policy': 'poly', 'by_epoch': False},
            optimizer_config={},
            checkpoint_config={'interval': 1},
            log_config={'interval': LOG_EVERY, 'hooks': [{'type': 'TextLoggerHook'}]},
        )
        runner.run([loader], [('train', 1)])


LOOPS = {'plain loop': by_hand, 'runnerkit': by_runner}

# --- measurements ----------------------------------------------------------------------------------------------------


def samples_per_second(case: Case, train: Callable[..., None], loader: Any) -> float:
    """After the warm-up; both ends wait for the device."""
    times: list[float] = []

    def note() -> None:
        if case.device.type == 'cuda':
            torch.cuda.synchronize(case.device)
        times.append(time.perf_counter())

    train(case, loader, Ticks({case.warmup: note, case.iterations: note}))
    return (case.iterations - case.warmup) * case.batch / (times[1] - times[0])


def host_waits(case: Case, train: Callable[..., None]) -> float:
    """Per iteration, between two log lines."""
    first, last = between_lines(case)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter('always')
        found: list[int] = []

        def listen(mode: str) -> None:
            if case.device.type == 'cuda':
                torch.cuda.set_sync_debug_mode(mode)
            found.append(sum('synchronizing' in str(each.message) for each in caught))

        try:
            train(case, case.batches(), Ticks({first: lambda: listen('warn'), last: lambda: listen('default')}))
        finally:
            if case.device.type == 'cuda':
                torch.cuda.set_sync_debug_mode('default')
    return (found[1] - found[0]) / (last - first)


def gaps(case: Case, train: Callable[..., None]) -> tuple[float, float]:
    """Gaps between kernels, between two log lines: microseconds per iteration, and their share of the time."""
    first, last = between_lines(case)
    cuda = case.device.type == 'cuda'
    profiler = profile(activities=[ProfilerActivity.CUDA] if cuda else [ProfilerActivity.CPU])
    train(case, case.batches(), Ticks({first: profiler.start, last: profiler.stop}))
    wanted = DeviceType.CUDA if cuda else DeviceType.CPU
    spans = sorted((e.time_range.start, e.time_range.end) for e in profiler.events() if e.device_type == wanted)
    idle, reached = 0.0, spans[0][1]
    for begin, end in spans:
        idle += max(0.0, begin - reached)
        reached = max(reached, end)
    return idle / (last - first), idle / (reached - spans[0][0])


def between_lines(case: Case) -> tuple[int, int]:
    """Two iterations without a log line or a part of the warm-up between them."""
    first = -(-case.warmup // LOG_EVERY) * LOG_EVERY + 2
    return first, min(first + LOG_EVERY - 4, case.iterations - 1)


def throughput(cases: list[Case], rounds: int) -> list[list[str]]:
    rows = []
    for case in cases:
        found: dict[str, list[float]] = {name: [] for name in LOOPS}
        for turn in range(rounds):
            for name, train in list(LOOPS.items())[:: 1 if turn % 2 else -1]:
                found[name].append(samples_per_second(case, train, case.batches()))
        ratio = [b / a for a, b in zip(*found.values(), strict=True)]
        rows.append([case.name, *(spread(each, 0) for each in found.values()), spread(ratio, 3)])
    return rows


def waiting(cases: list[Case]) -> list[list[str]]:
    rows = []
    for case, (name, train) in itertools.product(cases, LOOPS.items()):
        idle, share = gaps(case, train)
        rows.append([case.name, name, f'{host_waits(case, train):.2f}', f'{idle:.0f}', f'{share:.1%}'])
    return rows


def prefetching(cases: list[Case], rounds: int) -> list[list[str]]:
    rows = []
    for case in cases:
        found: dict[bool, list[float]] = {False: [], True: []}
        for _ in range(rounds):
            for prefetch, each in found.items():
                each.append(samples_per_second(case, by_runner, case.loader(prefetch)))
        ratio = [b / a for a, b in zip(*found.values(), strict=True)]
        rows.append([case.name, *(spread(each, 0) for each in found.values()), spread(ratio, 3)])
    return rows


def spread(values: list[float], digits: int) -> str:
    """Median, least and most."""
    return f'{statistics.median(values):.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})'


def table(columns: list[str], rows: Iterable[list[str]]) -> str:
    lines = [columns, ['---'] + ['---:'] * (len(columns) - 1), *rows]
    return '\n'.join(f'| {" | ".join(line)} |' for line in lines) + '\n'


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition('\n')[0])
    parser.add_argument('--device', default='cuda', help='cuda, cuda:1 or cpu')
    parser.add_argument('--rounds', type=int, default=5)
    parser.add_argument('--smoke', action='store_true', help='tiny sizes, to check that everything works')
    args = parser.parse_args()
    device = torch.device(args.device)
    if device.type == 'cuda' and not torch.cuda.is_available():
        print('no GPU: nothing is measured')
        return
    if args.smoke:
        args.rounds = 1
        cases = [
            Case('ResNet', lambda: resnet((1, 1), 4), (3, 16, 16), 2, 60, 5, device),
            Case('small kernels', lambda: small_kernels(3), (32,), 2, 60, 5, device),
        ]
    else:
        cases = [
            Case('ResNet-50', resnet, (3, 224, 224), 64, 200, 50, device),
            Case('small kernels', small_kernels, (32,), 64, 500, 100, device),
        ]
    where = torch.cuda.get_device_name(device) if device.type == 'cuda' else 'CPU'
    print(f'{where}, torch {torch.__version__}, {args.rounds} rounds\n')
    print(table(['samples/s', *LOOPS, 'runnerkit / plain'], throughput(cases, args.rounds)))
    print(table(['', 'loop', 'host waits an iteration', 'gaps, µs an iteration', 'of the time'], waiting(cases)))
    print(table(['samples/s', 'prefetch off', 'prefetch on', 'on / off'], prefetching(cases, args.rounds)))


if __name__ == '__main__':
    main()
