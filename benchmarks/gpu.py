"""Compare runnerkit with the plain loop and Lightning on a GPU, in one table, in at most eight minutes.

    python benchmarks/gpu.py                          # without a GPU only a message; exits with 0
    python benchmarks/gpu.py --device cpu --smoke     # the same code with tiny sizes: its figures mean nothing

Two models: ResNet-50, whose kernels are long, and 100 small linear layers, whose kernels are so short that the GPU
waits for the host, which makes an engine's overhead visible. The runner has its five default hooks and logs every 50
iterations; Lightning, where it can be imported, logs to a CSV file and saves at the end. The plain loop only trains.

- host time: the wall clock between two iterations without a wait for the GPU, with small kernels
- idle: gaps between kernels
- host waits: calls that `torch.cuda.set_sync_debug_mode` reports, between two log lines
- copies: to the device and to the host, between two log lines
- a save: how long it keeps the training waiting, ResNet-50 with AdamW
- resume: the run is killed by SIGKILL in the middle of an epoch; are the last weights those of an undisturbed run?

What begins after the time is up is left out and says so.
"""

from __future__ import annotations

import argparse
import itertools
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import DeviceType
from torch.nn.functional import cross_entropy
from torch.profiler import ProfilerActivity, profile
from torch.utils.data import DataLoader, Dataset, TensorDataset

import runnerkit
from runnerkit.data import build_dataloader
from runnerkit.nn.compiled import compile_model
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
        name: the name in the table.
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

    @property
    def on_gpu(self) -> bool:
        return self.device.type == 'cuda'

    def batches(self) -> list[Any]:
        """One batch, repeated for each iteration; in pinned memory if there is a GPU."""
        x, y = torch.randn(self.batch, *self.shape), torch.randint(CLASSES, (self.batch,))
        pinned = (x.pin_memory(), y.pin_memory()) if self.on_gpu else (x, y)
        return [pinned] * self.iterations

    def samples(self) -> Samples:
        return Samples(self.shape, self.batch * self.iterations)

    def torch_loader(self) -> Any:
        """torch's loader of samples."""
        workers = 4 if self.on_gpu else 0
        return DataLoader(self.samples(), self.batch, shuffle=True, num_workers=workers, pin_memory=self.on_gpu)

    def loader(self, prefetch: bool) -> Any:
        """runnerkit's loader of samples, with or without prefetching of its batches."""
        ahead = {'prefetch_to': self.device} if prefetch and self.on_gpu else {}
        workers = 4 if self.on_gpu else 0
        return build_dataloader(self.samples(), self.batch, workers, seed=0, pin_memory=self.on_gpu, **ahead)

    def wait(self) -> None:
        """Wait for the device."""
        if self.on_gpu:
            torch.cuda.synchronize(self.device)


class Batches:
    """Batches as a loader, for Lightning, which takes a list for several loaders."""

    def __init__(self, batches: list[Any]) -> None:
        self.batches = batches

    def __iter__(self) -> Iterator[Any]:
        return iter(self.batches)

    def __len__(self) -> int:
        return len(self.batches)


@dataclass
class Setting:
    """How it is trained; by default SGD in single precision.

    Args:
        bf16: the forward pass under autocast.
        compiled: with CUDA graphs.
        adamw: arguments of AdamW; None trains with SGD.
        saves: whether to save with AdamW's state at the end, `'background'` without waiting for the file.
    """

    bf16: bool = False
    compiled: bool = False
    adamw: dict[str, Any] | None = None
    saves: str | None = None

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        if self.adamw is not None:
            return torch.optim.AdamW(model.parameters(), lr=1e-4, **self.adamw)
        return torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)

    def compiler(self, case: Case) -> dict[str, Any]:
        return {'mode': 'reduce-overhead'} if case.on_gpu else {'backend': 'eager'}


class Ticks:
    """Calls functions at some iterations, from the loss, which all loops call once per iteration."""

    def __init__(self, actions: dict[int, Callable[[], None]]) -> None:
        self.actions = actions
        self.count = 0
        self.save_seconds = 0.0

    def __call__(self, logits: Tensor, classes: Tensor) -> Tensor:
        self.count += 1
        if self.count in self.actions:
            self.actions[self.count]()
        return cross_entropy(logits, classes)


def by_hand(case: Case, loader: Any, loss_of: Ticks, setting: Setting) -> None:
    """The plain loop."""
    model = case.build().to(case.device)
    net: Any = torch.compile(model, **setting.compiler(case)) if setting.compiled else model
    optimizer = setting.optimizer(model)
    model.train()
    for x, y in loader:
        x, y = x.to(case.device, non_blocking=True), y.to(case.device, non_blocking=True)
        optimizer.zero_grad()
        with torch.autocast(case.device.type, torch.bfloat16) if setting.bf16 else nullcontext():
            loss = loss_of(net(x), y)
        loss.backward()
        optimizer.step()
    if setting.saves:
        case.wait()
        began = time.perf_counter()
        with tempfile.TemporaryFile() as file:
            torch.save({'model': model.state_dict(), 'optimizer': optimizer.state_dict()}, file)
            file.flush()
            os.fsync(file.fileno())
        loss_of.save_seconds = time.perf_counter() - began


class Step(nn.Module):
    """The model with the runner's step."""

    def __init__(self, case: Case, loss_of: Ticks, setting: Setting) -> None:
        super().__init__()
        self.net, self.loss_of, self.device = case.build().to(case.device), loss_of, case.device
        if setting.compiled:
            compile_model(self, modules=['net'], **setting.compiler(case))

    def train_step(self, data: Any, optimizer: Any) -> dict[str, Any]:
        x, y = (each.to(self.device, non_blocking=True) for each in data)
        loss = self.loss_of(self.net(x), y)
        return {'loss': loss, 'log_vars': {'loss': loss}, 'num_samples': len(x)}


def by_runner(case: Case, loader: Any, loss_of: Ticks, setting: Setting) -> None:
    """EpochBasedRunner with its five default hooks."""
    model = Step(case, loss_of, setting)
    logger = get_logger('runnerkit', log_level='ERROR')
    with tempfile.TemporaryDirectory() as folder:
        optimizer = setting.optimizer(model)
        runner = EpochBasedRunner(model, optimizer=optimizer, work_dir=folder, logger=logger, max_epochs=1)
        runner.register_training_hooks(
            lr_config={'policy': 'poly', 'by_epoch': False},
            optimizer_config={'amp': 'bf16'} if setting.bf16 else {},
            checkpoint_config={'interval': 1, 'async_save': setting.saves == 'background'},
            log_config={'interval': LOG_EVERY, 'hooks': [{'type': 'TextLoggerHook'}]},
        )
        waits: list[float] = []
        if setting.saves:
            save = runner.save

            def timed(*args: Any, **kwargs: Any) -> Any:
                case.wait()
                began = time.perf_counter()
                saved = save(*args, **kwargs)
                waits.append(time.perf_counter() - began)
                return saved

            runner.save = timed
        runner.run([loader], [('train', 1)])
        loss_of.save_seconds = waits[0] if waits else 0.0


def by_lightning(case: Case, loader: Any, loss_of: Ticks, setting: Setting) -> None:
    """Lightning's Trainer, with a CSV logger and its checkpoint at the end."""
    import logging

    from lightning.pytorch import LightningModule, Trainer
    from lightning.pytorch.callbacks import ModelCheckpoint
    from lightning.pytorch.loggers import CSVLogger

    logging.getLogger('lightning.pytorch').setLevel(logging.ERROR)

    class Module(LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net: Any = case.build()
            if setting.compiled:
                self.net.compile(**setting.compiler(case))

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            loss = loss_of(self.net(batch[0]), batch[1])
            self.log('loss', loss)
            return loss

        def configure_optimizers(self) -> Any:
            return setting.optimizer(self)

    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(
            accelerator='gpu' if case.on_gpu else 'cpu',
            devices=[case.device.index or 0] if case.on_gpu else 1,
            max_epochs=1,
            precision='bf16-mixed' if setting.bf16 else '32-true',
            logger=CSVLogger(folder),
            log_every_n_steps=LOG_EVERY,
            callbacks=[ModelCheckpoint(folder)],
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        trainer.fit(Module(), Batches(loader) if isinstance(loader, list) else loader)
        if setting.saves:
            case.wait()
            began = time.perf_counter()
            trainer.save_checkpoint(f'{folder}/again.ckpt')
            loss_of.save_seconds = time.perf_counter() - began


PLAIN = 'plain loop'
Train = Callable[[Case, Any, Ticks, Setting], None]
LOOPS: dict[str, Train] = {PLAIN: by_hand, 'runnerkit': by_runner}
if find_spec('lightning') is not None:
    LOOPS['Lightning'] = by_lightning

# --- measurements ----------------------------------------------------------------------------------------------------

Row = dict[str, list[float]]  # by loop, one number per round


def samples_per_second(case: Case, train: Train, loader: Any, setting: Setting) -> float:
    """After the warm-up; both ends wait for the device."""
    times: list[float] = []

    def note() -> None:
        case.wait()
        times.append(time.perf_counter())

    train(case, loader, Ticks({case.warmup: note, case.iterations: note}), setting)
    return (case.iterations - case.warmup) * case.batch / (times[1] - times[0])


def throughput(case: Case, rounds: int, setting: Setting | None = None) -> Row:
    """Samples per second of each loop, in turns."""
    found: Row = {name: [] for name in LOOPS}
    for turn in range(rounds):
        for name, train in list(LOOPS.items())[:: 1 if turn % 2 else -1]:
            found[name].append(samples_per_second(case, train, case.batches(), setting or Setting()))
    return found


def prefetching(case: Case, rounds: int) -> Row:
    """Samples per second from loaders with workers: torch's, and runnerkit's with prefetching."""
    found: Row = {name: [] for name in LOOPS}
    for _, (name, train) in itertools.product(range(rounds), LOOPS.items()):
        loader = case.loader(prefetch=True) if name == 'runnerkit' else case.torch_loader()
        found[name].append(samples_per_second(case, train, loader, Setting()))
    return found


def not_ahead(case: Case, rounds: int) -> Row:
    """The same with runnerkit's loader without prefetching."""
    setting = Setting()
    return {'runnerkit': [samples_per_second(case, by_runner, case.loader(False), setting) for _ in range(rounds)]}


def host_time(case: Case, rounds: int) -> Row:
    """Microseconds of an iteration between two log lines, without a wait for the device."""
    first, last = between_lines(case)
    found: Row = {name: [] for name in LOOPS}
    for _, (name, train) in itertools.product(range(rounds), LOOPS.items()):
        times: list[float] = []

        def note(times: list[float] = times) -> None:
            times.append(time.perf_counter())

        train(case, case.batches(), Ticks({first: note, last: note}), Setting())
        found[name].append((times[1] - times[0]) / (last - first) * 1e6)
    return found


def host_waits(case: Case, rounds: int) -> Row:
    """Waits for the device between two log lines."""
    first, last = between_lines(case)
    found: Row = {}
    for name, train in LOOPS.items():
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter('always')
            counts: list[int] = []

            def listen(mode: str, caught: Any = caught, counts: list[int] = counts) -> None:
                if case.on_gpu:
                    torch.cuda.set_sync_debug_mode(mode)
                counts.append(sum('synchronizing' in str(each.message) for each in caught))

            actions = {first: lambda: listen('warn'), last: lambda: listen('default')}
            try:
                train(case, case.batches(), Ticks(actions), Setting())
            finally:
                if case.on_gpu:
                    torch.cuda.set_sync_debug_mode('default')
        found[name] = [counts[1] - counts[0]]
    return found


def traced(case: Case, train: Train) -> Iterator[tuple[str, float, float]]:
    """What the device did between two log lines: name, begin and end in microseconds."""
    first, last = between_lines(case)
    profiler = profile(activities=[ProfilerActivity.CUDA if case.on_gpu else ProfilerActivity.CPU])
    train(case, case.batches(), Ticks({first: profiler.start, last: profiler.stop}), Setting())
    wanted = DeviceType.CUDA if case.on_gpu else DeviceType.CPU
    for event in profiler.events():
        if event.device_type == wanted:
            yield event.name, event.time_range.start, event.time_range.end


def idle_time(case: Case, rounds: int) -> Row:
    """Microseconds of an iteration in which the device has nothing to do."""
    first, last = between_lines(case)
    found: Row = {name: [] for name in LOOPS}
    for _, (name, train) in itertools.product(range(rounds), LOOPS.items()):
        spans = sorted((begin, end) for _, begin, end in traced(case, train))
        idle, reached = 0.0, spans[0][1]
        for begin, end in spans:
            idle += max(0.0, begin - reached)
            reached = max(reached, end)
        found[name].append(idle / (last - first))
    return found


def copies(case: Case, rounds: int, way: str) -> Row:
    """Copies between two log lines, ``way`` 'HtoD' or 'DtoH'; two of an iteration's are its batch."""
    return {name: [sum(way in each for each, _, _ in traced(case, train))] for name, train in LOOPS.items()}


def saving(case: Case, rounds: int, saves: str = 'now') -> Row:
    """Milliseconds that a save keeps the training waiting; in the background only runnerkit's is."""
    found: Row = {name: [] for name in LOOPS if saves == 'now' or name == 'runnerkit'}
    short = Case(case.name, case.build, case.shape, case.batch, 3, 1, case.device)
    for _, name in itertools.product(range(rounds), found):
        ticks = Ticks({})
        LOOPS[name](short, short.batches(), ticks, Setting(adamw={}, saves=saves))
        found[name].append(ticks.save_seconds * 1e3)
    return found


def between_lines(case: Case) -> tuple[int, int]:
    """Two iterations without a log line or a part of the warm-up between them."""
    first = -(-case.warmup // LOG_EVERY) * LOG_EVERY + 2
    return first, min(first + LOG_EVERY - 4, case.iterations - 1)


# --- resume ----------------------------------------------------------------------------------------------------------

EPOCHS, STEPS, KILLED_AT = 2, 20, 33  # a save every four iterations


class Noisy(nn.Module):
    """A network whose bits depend on the device's random numbers: `[n, 32]` to `[n, CLASSES]`."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Dropout(0.5), nn.Linear(64, CLASSES))

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x)


def child(loop: str, folder: Path, device: torch.device, kill: bool) -> None:
    """Train in ``folder``, or go on there; the last weights are in ``weights.pt``."""
    torch.manual_seed(0)
    samples = TensorDataset(torch.randn(8 * STEPS, 32), torch.arange(8 * STEPS) % CLASSES)
    model, count = Noisy(), 0

    def loss_of(logits: Tensor, classes: Tensor) -> Tensor:
        nonlocal count
        count += 1
        if kill and count == KILLED_AT:
            os.kill(os.getpid(), signal.SIGKILL)
        return cross_entropy(logits, classes)

    if loop == 'runnerkit':
        runnerkit.fit(
            model,
            samples,
            loss=loss_of,
            optimizer={'type': 'AdamW', 'lr': 1e-3},
            epochs=EPOCHS,
            batch_size=8,
            work_dir=folder,
            seed=0,
            device=str(device),
            resume=(folder / 'latest.pth').exists(),
            checkpoint_config={'interval': 4, 'by_epoch': False},
        )
    else:
        from lightning.pytorch import LightningModule, Trainer, seed_everything
        from lightning.pytorch.callbacks import ModelCheckpoint

        class Module(LightningModule):
            def __init__(self) -> None:
                super().__init__()
                self.net = model

            def training_step(self, batch: Any, batch_idx: int) -> Any:
                return loss_of(self.net(batch[0]), batch[1])

            def configure_optimizers(self) -> Any:
                return torch.optim.AdamW(self.parameters(), lr=1e-3)

        seed_everything(0)
        on_gpu = device.type == 'cuda'
        Trainer(
            accelerator='gpu' if on_gpu else 'cpu',
            devices=[device.index or 0] if on_gpu else 1,
            max_epochs=EPOCHS,
            logger=False,
            callbacks=[ModelCheckpoint(folder, every_n_train_steps=4, save_last=True)],
            enable_progress_bar=False,
            enable_model_summary=False,
        ).fit(Module(), DataLoader(samples, 8, shuffle=True), ckpt_path='last')
    torch.save({name: value.cpu() for name, value in model.state_dict().items()}, folder / 'weights.pt')


def resumed(device: torch.device) -> dict[str, str]:
    """Whether a run that was killed ends with the weights of one that was not, by loop."""
    found = {PLAIN: 'has none'}
    for loop in list(LOOPS)[1:]:
        with tempfile.TemporaryDirectory() as place:

            def run(name: str, *options: str, loop: str = loop, place: str = place) -> int:
                (Path(place) / name).mkdir(exist_ok=True)
                command = [sys.executable, __file__, '--device', str(device), '--child', loop, f'{place}/{name}']
                done = subprocess.run([*command, *options], capture_output=True, text=True)
                if done.returncode not in (0, -signal.SIGKILL):
                    raise RuntimeError(f'{loop} ended with {done.returncode}:\n{done.stderr[-2000:]}')
                return done.returncode

            run('whole')
            if run('killed', '--kill') != -signal.SIGKILL:
                raise RuntimeError(f'{loop} was not killed')
            run('killed')
            whole, killed = (torch.load(Path(place) / name / 'weights.pt') for name in ('whole', 'killed'))
            most = max(float((killed[name] - whole[name]).abs().max()) for name in whole)
            found[loop] = 'the same bits' if not most else f'other weights, by up to {most:.2g}'
    return found


# --- the table -------------------------------------------------------------------------------------------------------


def measurements(long: Case, small: Case, rounds: int) -> Iterator[tuple[str, Callable[[], Row]]]:
    """All rows of numbers, the cheap and telling ones first."""
    for name, row in (('host time, µs an iteration', host_time), ('idle time, µs an iteration', idle_time)):
        yield f'{small.name}: {name}', lambda row=row: row(small, rounds)
    yield f'{small.name}: host waits between two log lines', lambda: host_waits(small, rounds)
    for name, way in (('to the device', 'HtoD'), ('to the host', 'DtoH')):
        yield f'{small.name}: copies {name} between two log lines', lambda way=way: copies(small, rounds, way)
    for title, setting in (
        ('', Setting()),
        (', AdamW', Setting(adamw={})),
        (', fused AdamW', Setting(adamw={'fused': True})),
        (', bf16', Setting(bf16=True)),
        (', compiled with reduce-overhead', Setting(compiled=True)),
    ):
        yield f'{small.name}: samples/s{title}', lambda setting=setting: throughput(small, rounds, setting)
    yield f'{long.name}: a save, ms', lambda: saving(long, rounds)
    yield f'{long.name}: a save in the background, ms', lambda: saving(long, rounds, 'background')
    yield f'{long.name}: samples/s', lambda: throughput(long, rounds)
    yield f'{long.name}: samples/s, bf16', lambda: throughput(long, rounds, Setting(bf16=True))
    yield f'{long.name}: idle time, µs an iteration', lambda: idle_time(long, 1)
    yield f'{long.name}: samples/s from a loader, not ahead', lambda: not_ahead(long, rounds)
    yield f'{long.name}: samples/s from a loader, prefetching', lambda: prefetching(long, rounds)


def spread(values: list[float]) -> str:
    """Median, least and most."""
    digits = 0 if max(values) >= 100 else 2
    middle = f'{statistics.median(values):.{digits}f}'
    return middle if len(values) == 1 else f'{middle} ({min(values):.{digits}f} to {max(values):.{digits}f})'


def cells(found: Row) -> list[str]:
    """The cells of a row: each loop's, and the ratio of runnerkit to the plain loop."""
    texts = [spread(found[name]) if name in found else '' for name in LOOPS]
    plain, own = found.get(PLAIN, []), found['runnerkit']
    ratios = [a / b for a, b in zip(own, plain, strict=False) if b]
    return [*texts, f'{statistics.median(ratios):.3f}' if ratios else '']


def line(texts: Iterable[str]) -> None:
    print(f'| {" | ".join(texts)} |', flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition('\n')[0])
    parser.add_argument('--device', default='cuda', help='cuda, cuda:1 or cpu')
    parser.add_argument('--rounds', type=int, default=3)
    parser.add_argument('--minutes', type=float, default=7, help='nothing begins after them')
    parser.add_argument('--smoke', action='store_true', help='tiny sizes, to check that everything works')
    parser.add_argument('--child', nargs=2, metavar=('LOOP', 'FOLDER'), help=argparse.SUPPRESS)
    parser.add_argument('--kill', action='store_true', help=argparse.SUPPRESS)
    args = parser.parse_args()
    device = torch.device(args.device)
    if args.child is not None:
        child(args.child[0], Path(args.child[1]), device, args.kill)
        return
    if device.type == 'cuda' and not torch.cuda.is_available():
        print('no GPU: nothing is measured')
        return
    began = time.monotonic()
    if args.smoke:
        args.rounds = 1
        long = Case('ResNet', lambda: resnet((1, 1), 4), (3, 16, 16), 2, 60, 5, device)
        small = Case('small kernels', lambda: small_kernels(3), (32,), 2, 60, 5, device)
    else:
        long = Case('ResNet-50', resnet, (3, 224, 224), 64, 150, 50, device)
        small = Case('small kernels', small_kernels, (32,), 64, 300, 100, device)
    where = torch.cuda.get_device_name(device) if device.type == 'cuda' else 'CPU'
    print(f'{where}, torch {torch.__version__}, {args.rounds} rounds\n')
    line(['', *LOOPS, 'runnerkit / plain'])
    line(['---', *(['---:'] * (len(LOOPS) + 1))])
    line(['resume after SIGKILL', *resumed(device).values(), ''])
    for title, measure in measurements(long, small, args.rounds):
        if time.monotonic() - began > args.minutes * 60:
            line([title, 'no time left', *[''] * len(LOOPS)])
            continue
        try:
            line([title, *cells(measure())])
        except Exception as error:  # the rows after it are still worth their minutes
            line([title, f'fails: {type(error).__name__}: {str(error).partition(chr(10))[0]}', *[''] * len(LOOPS)])


if __name__ == '__main__':
    main()
