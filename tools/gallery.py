"""Run the gallery and write its pages: docs/gallery/.

    python tools/gallery.py                # every entry of tools/gallery.yml: about half an hour
    python tools/gallery.py lenet wine     # only these; `make gallery-mmcls` runs resnet_mnist
    python tools/gallery.py --pages        # only the pages, from the numbers in docs/gallery/results.json

Commands run in a temporary folder that has this repository's ``configs`` and ``tools``.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import yaml

import runnerkit
from runnerkit.config import Config
from runnerkit.data import build_dataset

ROOT = Path(__file__).resolve().parent.parent
PAGES = ROOT / 'docs' / 'gallery'
RESULTS = PAGES / 'results.json'
ENTRIES: list[dict[str, Any]] = yaml.safe_load((ROOT / 'tools' / 'gallery.yml').read_text(encoding='utf-8'))

COLOURS = 64  # of a picture: a third of the bytes, and no visible loss
WIDEST = 900  # of a picture, in pixels


# --- runs ------------------------------------------------------------------------------------------------------------


def record(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Run the commands of an entry, keep its pictures, and return its numbers."""
    with scratch_folder():
        printed, seconds, cpu_seconds = run(entry['commands'])
        numbers: dict[str, Any] = {'seconds': round(seconds), 'cpu_seconds': round(cpu_seconds)}
        numbers['scores'] = {name: score(pattern, printed) for name, pattern in entry['score'].items()}
        if 'curve' in entry:
            keep_picture(entry['curve'], f'{entry["name"]}_curve.png')
            if 'picture' not in entry:
                keep_card(entry['name'])
        if 'picture' in entry:
            drawn = entry['picture']
            if drawn in PICTURES:
                PICTURES[drawn](entry, 'drawn.png')
                drawn = 'drawn.png'
            keep_picture(drawn, f'{entry["name"]}_samples.png')
        if 'text_sample' in entry:
            numbers['text'] = TEXTS[entry['text_sample']](entry)
    return numbers


@contextmanager
def scratch_folder() -> Iterator[None]:
    """Work in a temporary folder that has this repository's ``configs`` and ``tools``."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            for name in ('configs', 'tools'):
                Path(name).symlink_to(ROOT / name)
            yield
        finally:
            os.chdir(before)


def run(commands: Iterable[str]) -> tuple[str, float, float]:
    """Run shell commands, and end those in the background afterwards.

    Returns what they have printed, and their seconds: by the clock, and of the CPU.
    """
    path = f'{Path(sys.executable).parent}{os.pathsep}{os.environ["PATH"]}'
    start, before = time.monotonic(), cpu_time()
    done = subprocess.run(
        ['bash', '-e', '-c', '\n'.join([*commands, 'kill $(jobs -p) 2> /dev/null || true'])],
        env=os.environ | {'PATH': path, 'PYTHONPATH': str(ROOT), 'OMP_NUM_THREADS': '1'},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode:
        raise RuntimeError(f'{commands} ended with exit code {done.returncode}:\n{done.stdout[-3000:]}')
    return done.stdout, time.monotonic() - start, cpu_time() - before


def cpu_time() -> float:
    """CPU seconds of all processes that this one has started and that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def score(pattern: str, printed: str) -> float:
    """The last number that ``pattern`` finds in what was printed."""
    found = re.findall(pattern, printed)
    if not found:
        raise RuntimeError(f'{pattern!r} is not in what was printed:\n{printed[-3000:]}')
    return float(found[-1])


# --- pictures --------------------------------------------------------------------------------------------------------


def keep_picture(path: str, name: str) -> None:
    """Copy a picture to the pages, with at most `WIDEST` pixels in a row and few colours."""
    from PIL import Image

    picture = Image.open(path).convert('RGB')
    if picture.width > WIDEST:
        picture = picture.resize((WIDEST, picture.height * WIDEST // picture.width), Image.Resampling.LANCZOS)
    picture.quantize(COLOURS).save(PAGES / 'images' / name, optimize=True)


def keep_card(name: str) -> None:
    """Cut the first chart out of a curve, for the card of an entry that has no samples."""
    from PIL import Image

    curve = Image.open(PAGES / 'images' / f'{name}_curve.png')
    columns, scale = (2, WIDEST / 1100) if curve.width == WIDEST else (1, 1.0)  # see `runnerkit.flow.look.curve`
    chart = curve.crop((0, round(24 * scale), curve.width // columns, round(245 * scale)))  # without the title
    chart.save(PAGES / 'images' / f'{name}_card.png', optimize=True)


def digits(entry: Mapping[str, Any], file: str) -> None:
    """Draw 24 test digits with the predicted classes, wrong ones first."""
    from matplotlib.figure import Figure

    dataset = build_dataset(Config.fromfile(entry['config']).data.test)
    found = [int(each) for each in runnerkit.predict(f'work_dirs/{entry["name"]}', 'test', apply='argmax', trust=True)]
    labels = [int(label) for _, label in dataset]
    order = sorted(range(len(found)), key=lambda place: found[place] == labels[place])[:24]
    figure = Figure(figsize=(7, 2.9), dpi=100, layout='constrained')
    for axis, place in zip(figure.subplots(3, 8).flat, order, strict=True):
        is_right = found[place] == labels[place]
        axis.imshow(dataset[place][0][0], cmap='gray_r')
        axis.set_title(
            f'{found[place]}' if is_right else f'{labels[place]}, not {found[place]}',
            color='black' if is_right else 'tab:red',
            fontsize=9,
        )
        axis.axis('off')
    figure.savefig(file)


def cells(entry: Mapping[str, Any], file: str) -> None:
    """Draw a part of a test frame, its mask and the predicted mask."""
    from matplotlib.figure import Figure

    sample = build_dataset(Config.fromfile(entry['config']).data.test)[0]
    logits = runnerkit.predict(f'work_dirs/{entry["name"]}', 'test', trust=True)[0].squeeze()
    figure = Figure(figsize=(8, 2.9), dpi=100, layout='constrained')
    panels = {'frame': sample['image'][0], 'mask': sample['mask'], 'prediction': logits > 0}
    for axis, (title, picture) in zip(figure.subplots(1, 3), panels.items(), strict=True):
        axis.imshow(picture[:256, :256], cmap='gray')
        axis.set_title(title)
        axis.axis('off')
    figure.savefig(file)


def verses(entry: Mapping[str, Any], length: int = 300) -> str:
    """Bytes that the language model draws one after another, from a fixed seed."""
    import torch

    network = runnerkit.load_model(f'work_dirs/{entry["name"]}', trust=True).model
    text = torch.tensor([list(b'HAMLET.\n')])
    draw = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for _ in range(length):
            chances = (network(text[:, -128:])[0, :, -1] / 0.7).softmax(0)
            text = torch.cat([text, torch.multinomial(chances, 1, generator=draw)[None]], 1)
    return bytes(text[0].tolist()).decode('utf-8', 'replace')


PICTURES: dict[str, Callable[[Mapping[str, Any], str], None]] = {'digits': digits, 'cells': cells}
TEXTS: dict[str, Callable[[Mapping[str, Any]], str]] = {'verses': verses}


# --- pages -----------------------------------------------------------------------------------------------------------


def pages(results: Mapping[str, dict[str, Any]]) -> Iterator[tuple[str, str]]:
    """The pages by the names of their files."""
    yield 'README.md', overview(results)
    for entry in ENTRIES:
        yield f'{entry["name"]}.md', page(entry, results.get(entry['name']))


def score_text(numbers: Mapping[str, Any]) -> str:
    """The scores, such as ``test accuracy 0.989``."""
    return ', '.join(f'{name} {value:.4g}' for name, value in numbers['scores'].items())


def overview(results: Mapping[str, dict[str, Any]]) -> str:
    """The page with a card for each entry."""
    lines = [
        '# Gallery',
        '',
        'Every config in `configs/`, trained by `make gallery` with the commands on its page, in one thread. Times are',
        'seconds of the CPU, from a busy machine with two cores. A star marks runs that are shorter than the config.',
        '',
        '<div class="grid cards" markdown>',
        '',
    ]
    for entry in ENTRIES:
        name, numbers = entry['name'], results.get(entry['name'])
        kind = next((kind for kind in ('samples', 'card') if (PAGES / 'images' / f'{name}_{kind}.png').exists()), None)
        lines += [f'- [**{entry["title"]}**]({name}.md)', '']
        lines += [f'    ![{entry["title"]}](images/{name}_{kind}.png)', ''] if kind else []
        star = '\\*' if 'shorter' in entry else ''
        said = 'not run' if numbers is None else f'{score_text(numbers)}, {numbers["cpu_seconds"]} s{star}'
        lines += [f'    {entry["text"]}', '', f'    {said}', '']
    lines.append('</div>')
    return '\n'.join(lines) + '\n'


def page(entry: Mapping[str, Any], numbers: Mapping[str, Any] | None) -> str:
    """The page of one entry."""
    name, config = entry['name'], entry['config']
    lines = [f'# {entry["title"]}', '', entry['text'], '', '```bash', *map(wrapped, entry['commands']), '```', '']
    if numbers is None:
        lines += ['Not run for this page.', '']
    else:
        lines += [f'- Score: {score_text(numbers)}']
        lines += [f'- Time: {numbers["cpu_seconds"]} s of CPU, {numbers["seconds"]} s by the clock of a busy machine']
    if 'shorter' in entry:
        lines += [f'- These commands train less than the config says: {entry["shorter"]}']
    if 'needs' in entry:
        lines += [f'- It needs {entry["needs"]}, in a separate environment: `make gallery-{entry["needs"]}`']
    if 'see' in entry:
        lines += [f'- [More about it](../{entry["see"]})']
    for kind, alt in (('samples', 'samples'), ('curve', 'curve of the run')):
        if (PAGES / 'images' / f'{name}_{kind}.png').exists():
            lines += ['', f'![{alt}](images/{name}_{kind}.png)']
    if numbers is not None and 'text' in numbers:
        lines += ['', 'What it writes:', '', '```text', *numbers['text'].splitlines(), '```']
    language = 'yaml' if config.endswith(('.yml', '.yaml')) else 'python'
    code = (ROOT / config).read_text(encoding='utf-8').rstrip('\n')
    lines += ['', '## The config', '', f'`{config}`:', '', f'```{language}', code, '```', '']
    return '\n'.join(lines)


def wrapped(command: str) -> str:
    """A command, in lines of at most 110 characters."""
    lines = textwrap.wrap(command, 110, subsequent_indent='  ', break_long_words=False, break_on_hyphens=False)
    return ' \\\n'.join(lines)


def main() -> int:
    """Run the entries named, or all, and write the pages."""
    parser = argparse.ArgumentParser(description=__doc__.partition('\n')[0])
    parser.add_argument('names', nargs='*', help='entries to run (default: all)')
    parser.add_argument('--pages', action='store_true', help='run nothing, only write the pages')
    args = parser.parse_args()
    known = [entry['name'] for entry in ENTRIES]
    if unknown := set(args.names) - {*known}:
        parser.error(f'no entries: {", ".join(sorted(unknown))}; choose from {", ".join(known)}')
    results = json.loads(RESULTS.read_text(encoding='utf-8')) if RESULTS.exists() else {}
    failed = []
    for entry in ENTRIES if not args.pages else ():
        is_installed = 'needs' not in entry or find_spec(entry['needs']) is not None
        if entry['name'] in args.names or (not args.names and is_installed):
            try:
                results[entry['name']] = record(entry)
            except RuntimeError as error:
                failed.append(entry['name'])
                print(f'{entry["name"]}: {error}', file=sys.stderr)
                continue
            print(entry['name'], results[entry['name']], flush=True)
            RESULTS.write_text(json.dumps(results, indent=1, sort_keys=True) + '\n', encoding='utf-8')
    for name, text in pages(results):
        (PAGES / name).write_text(text, encoding='utf-8')
    return int(bool(failed))


if __name__ == '__main__':
    sys.exit(main())
