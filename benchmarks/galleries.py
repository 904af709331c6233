"""Load whole config galleries with the real MMCV 1.x and with runnerkit, in turns; compare dictionaries and times.

    pip download --no-deps mmcls==0.25.0 mmsegmentation==0.30.0 mmdet==2.28.2, unzip them into a folder, then
    python benchmarks/galleries.py folder --mmcv-python <python of an environment with mmcv 1.7.2>

Each library loads every config in one process and does not keep bases between configs; times are CPU seconds. MMCV's
`pretty_text` takes seconds, so it prints only every 40th config; runnerkit prints all of them and reads each back.
"""

import argparse
import hashlib
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
import types

STEP = 40  # MMCV prints one config in this many


def canonical(value):
    """The text of a value; it ignores the order of keys and nothing else."""
    if isinstance(value, dict):
        return '{' + ', '.join(f'{key!r}: {canonical(value[key])}' for key in sorted(value, key=repr)) + '}'
    if isinstance(value, (list, tuple)):
        return f'{type(value).__name__}({", ".join(map(canonical, value))})'
    return repr(value)


def worker(library, folder):
    """Print one line for each config: digest or error, CPU seconds of loading and of printing."""
    if library == 'mmcv':
        sys.modules['torchvision'] = types.ModuleType('torchvision')  # imported only for URLs of models
        from mmcv import Config
    else:
        from runnerkit import Config
    files = sorted(pathlib.Path(folder).rglob('.mim/configs/**/*.py'))
    for number, file in enumerate(files):
        row = dict(file=str(file.relative_to(folder)))
        start = time.process_time()
        try:
            config = Config.fromfile(str(file))
        except Exception as error:
            row.update(error=f'{type(error).__name__}: {error}'.split('\n')[0])
        else:
            row.update(load=time.process_time() - start)
            text = canonical(config._cfg_dict.to_dict())
            row.update(digest=hashlib.sha256(text.encode()).hexdigest())
            if library == 'runnerkit' or number % STEP == 0:
                start = time.process_time()
                printed = config.pretty_text
                row.update(pretty=time.process_time() - start, printed_lines=printed.count('\n'))
            if library == 'runnerkit':
                row.update(round_trip=read_back(Config, printed) == text)
        print(json.dumps(row), flush=True)


def read_back(Config, printed):
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder, 'printed.py')
        file.write_text(printed, encoding='utf-8')
        return canonical(Config.fromfile(str(file))._cfg_dict.to_dict())


def run(python, library, folder):
    command = [python, '-W', 'ignore', __file__, folder, '--worker', library]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return {row['file']: row for row in map(json.loads, output.splitlines())}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('folder')
    parser.add_argument('--mmcv-python')
    parser.add_argument('--rounds', type=int, default=3)
    parser.add_argument('--worker')
    args = parser.parse_args()
    if args.worker:
        worker(args.worker, args.folder)
        return
    rounds = [
        (run(args.mmcv_python, 'mmcv', args.folder), run(sys.executable, 'runnerkit', args.folder))
        for _ in range(args.rounds)
    ]
    theirs, ours = rounds[0]
    loaded = [file for file, row in theirs.items() if 'digest' in row]
    different = [file for file in loaded if ours[file].get('digest') != theirs[file]['digest']]
    print(f'{len(theirs)} configs; MMCV loads {len(loaded)}; {len(loaded) - len(different)} give the same dictionary')
    for file in different:
        print('  different:', file, ours[file].get('error', ''))
    for file, row in theirs.items():
        if 'error' in row:
            print('  fails in MMCV:', file, '|', row['error'][:150], '| here:', ours[file].get('error', 'LOADS')[:300])
    wrong = [file for file in loaded if not ours[file].get('round_trip')]
    print(f'pretty_text read back: {len(loaded) - len(wrong)} of {len(loaded)} the same', *wrong)
    for what in ('load', 'pretty'):
        ratios = []
        for a, b in rounds:
            both = [file for file in loaded if what in a[file] and what in b[file]]
            means = [statistics.mean(each[file][what] for file in both) * 1e3 for each in (a, b)]
            ratios.append(means[0] / means[1])
            print(
                f'{what}: {len(both)} configs, MMCV {means[0]:.2f} ms, runnerkit {means[1]:.2f} ms, x{ratios[-1]:.1f}'
            )
        print(f'{what}: median x{statistics.median(ratios):.1f}')


if __name__ == '__main__':
    main()
