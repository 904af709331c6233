"""Compare whole commands, from start to exit, in turns: CPU seconds with those of child processes, and the wall clock.

    python benchmarks/whole.py [--rounds 6] [--only lenet transformer] [--ways 'by config' 'by hand']
    make bench                                                       # with peers, after the other benchmarks

Each round runs the commands of a job once, in another order. Warm byte code: one round before is not counted. Peers are
run in the environments of ``make bench``; one that is not there, or fails, is left out and named. `whole/phases.py`
measures where the CPU time goes. The jobs of loops print the CPU seconds of their loop themselves. After each job, its
table is put into RESULTS.md, in the place of the one before.
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from speed import machine

ROOT = Path(__file__).resolve().parent.parent
WHOLE = ROOT / 'benchmarks' / 'whole'
OWN = ''  # the environment of this script
RUNNERKIT = ['-m', 'runnerkit', 'train']
LENET = [*RUNNERKIT, 'configs/mnist/lenet.py', '--work-dir', '{work_dir}', '--cfg-options', 'runner.max_epochs=3']
TRANSFORMER = [*RUNNERKIT, str(WHOLE / 'transformer.py'), '--work-dir', '{work_dir}']
DEEPFM = [*RUNNERKIT, 'configs/recommendation/deepfm.yaml', '--cfg-options', 'runner.0.epochs=1']
DEEPFM += ['runner.0.save_checkpoint_path={work_dir}', 'runner.1.init_model_path={work_dir}']


def script(name, *arguments):
    return [str(WHOLE / f'{name}.py'), *arguments, '{work_dir}']


def peers(job):
    names = {'Lightning': 'lightning', 'MMEngine': 'mmengine', 'HF Trainer': 'transformers'}
    return {title: (name, script(f'by_{name}', job)) for title, name in names.items()}


#: By job, its ways: the environment and the command. Ratios are to the first.
JOBS = {
    'lenet': {
        'by hand': (OWN, script('lenet_by_hand')),
        'by config': (OWN, LENET),
        'by config, without a report': (OWN, [*LENET, 'report=False']),
        **peers('lenet'),
    },
    'transformer': {
        'by hand': (OWN, script('by_hand', 'transformer')),
        'by hand, fused': (OWN, [*script('by_hand', 'transformer'), 'fused']),
        'by config': (OWN, TRANSFORMER),
        **peers('transformer'),
    },
    'deepfm': {
        'by hand': (OWN, script('by_hand', 'deepfm')),
        'by config': (OWN, DEEPFM),
        **peers('deepfm'),
    },
}
WORDS = {
    'lenet': """LeNet for three epochs of configs/mnist, with augmentation, evaluation, log, TensorBoard, a checkpoint
an epoch and the best one. By hand and by config draw the curve; the report of a config has more pictures.""",
    'transformer': """A transformer of ten million parameters, 30 iterations of 8 sequences of 32 tokens: AdamW,
clipping, averaged weights, a cosine, an evaluation, a checkpoint, a log. A config takes the fused AdamW by itself.""",
    'deepfm': """DeepFM for one epoch on 90,000 ratings of configs/recommendation, from weights that are counted. By
hand and by config evaluate the checkpoint afterwards and draw two curves; peers evaluate at the end of the epoch.""",
    'loops': """The training loop alone: by hand, with `runnerkit.loop`, and that without `run.log`, epoch by epoch in
turns in one process: CPU seconds of an epoch and its ratio to that by hand in the same round (and the middle half).""",
    'evaluations': """An evaluation (loss and accuracy of all batches) by the runner over one by hand, in turns in one
process.""",
    'saves': """The runner's save, and by hand torch.save with a flush; what a save in the background waits for, and a
copy of the weights; a resume, and torch.load(mmap=True) with load_state_dict and a CRC-32 of the file. In turns in one
process, of 40 million weights in 8 tensors, and of 10 million in 1,000, with an AdamW that has no state yet: medians,
and the middle half of the ratios.""",
}
TITLE = '## Whole commands'
OURS = ('by config',)
IN_ONE_PROCESS = ('loops', 'evaluations', 'saves')  # scripts that print rows themselves


class Failed(Exception):
    """A command that cannot be measured; the message is one line."""


def python(environments, name):
    """The interpreter of an environment."""
    if name == OWN:
        return sys.executable
    found = environments / name / 'bin' / 'python'
    if not found.exists():
        raise Failed('not installed')
    return str(found)


def timed(interpreter, command):
    """CPU seconds, wall seconds, and CPU seconds of each phase."""
    with tempfile.TemporaryDirectory() as folder:
        words = [word.format(work_dir=f'{folder}/run') for word in command]
        phases = Path(folder) / 'phases.json'
        environ = {**os.environ, 'PYTHONPATH': str(ROOT), 'OMP_NUM_THREADS': '1'}
        environ.pop('PYTHONDONTWRITEBYTECODE', None)
        before, began = os.times(), time.monotonic()
        words = [interpreter, str(WHOLE / 'phases.py'), str(phases), *words]
        done = subprocess.run(words, cwd=ROOT, env=environ, capture_output=True, text=True)
        after, wall = os.times(), time.monotonic() - began
        if done.returncode:
            raise Failed((done.stderr.strip().splitlines() or [f'exit code {done.returncode}'])[-1])
        spent = json.loads(phases.read_text())
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    spent['end'] += cpu - sum(spent.values())
    return {'cpu': cpu, 'wall': wall, **spent}


def measured(job, ways, rounds, environments):
    """What each way has taken in each round, and why some are left out."""
    seen, failed = {way: [] for way in ways}, {}
    for number in range(rounds + 1):
        for way in random.sample(list(seen), len(seen)):
            name, command = ways[way]
            try:
                taken = timed(python(environments, name), command)
            except Failed as error:
                failed[way] = str(error)
                del seen[way]
                continue
            seen[way] += [taken] if number else []
            print(json.dumps({'job': job, 'way': way, 'round': number, **taken}), flush=True)
    return seen, failed


def spread(values, digits):
    return f'{statistics.median(values):.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})'


def table(job, seen, failed, where):
    """The section of a job, measured ``where`` (`speed.machine.describe`)."""
    base = next(iter(seen.values()))
    phases = [key for key in base[0] if key not in ('cpu', 'wall')]
    lines = [['way', f'CPU / {next(iter(seen))}', 'CPU, s', 'wall, s', *phases]]
    lines.append(['---'] + ['---:'] * (len(lines[0]) - 1))
    for way, taken in seen.items():
        ratios = [one['cpu'] / other['cpu'] for one, other in zip(taken, base, strict=True)]
        middle = [f'{statistics.median(each[phase] for each in taken):.2f}' for phase in phases]
        spent = [spread([each[key] for each in taken], 2) for key in ('cpu', 'wall')]
        lines.append([f'**{way}**' if way.startswith(OURS) else way, spread(ratios, 3), *spent, *middle])
    rows = '\n'.join(f'| {" | ".join(line)} |' for line in lines)
    left_out = ''.join(f'\n- {way} is left out: {reason}' for way, reason in failed.items())
    return f'{heading(job, where)} {len(base)} rounds.\n\n{rows}\n' + (f'{left_out}\n' if left_out else '')


def heading(job, where):
    """What a section says above its table."""
    commit = where['commit'] + (' with changes' if where['changed'] else '')
    measured = f'Measured on {where["date"]} at commit {commit}, load {where["load"]:.1f} before.'
    return f'### Command: {job}\n\n{WORDS[job]}\n{measured}'


def in_one_process(job, where):
    """The section of what a script compares in one process."""
    environ = {**os.environ, 'OMP_NUM_THREADS': '1'}
    done = subprocess.run(
        [sys.executable, WHOLE / f'{job}.py'], env=environ, stdout=subprocess.PIPE, text=True, check=True
    )
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{')]
    lines = [list(rows[0]), ['---'] * len(rows[0]), *([str(value) for value in row.values()] for row in rows)]
    return f'{heading(job, where)}\n\n' + ''.join(f'| {" | ".join(line)} |\n' for line in lines)


INTRODUCTION = f"""{TITLE}

From the command to its exit, written by `benchmarks/whole.py`: CPU seconds of the process and its children, each with
one thread and warm byte code, in turns; medians, the least and the most in brackets, ratios within a round. Phases are
CPU seconds, measured at functions that all engines call (`benchmarks/whole/phases.py`): the update is all between a
backward pass and the next batch, the end all after the last save or evaluation. Every way logs, evaluates and saves at
the same iterations; peers do it in their own way.
"""


def put(path, job, section):
    """Write the section of ``job`` into a report, in the place of its last one."""
    text = path.read_text(encoding='utf-8') if path.exists() else ''
    before, found, rest = text.partition(TITLE)
    own, mark, rest = rest.partition('\n## ') if found else ('', '', rest)
    if not found:
        before, mark, rest = text.partition('\n## Not covered')
        mark, rest = (mark[:4], mark[4:] + rest) if mark else ('', rest)
        before = f'{before.rstrip()}\n\n'
    sections = {part.partition('\n')[0]: part for part in own.split('### Command: ')[1:]}
    sections[job] = section.removeprefix('### Command: ')
    # What a person has put in by hand ("lenet, with peers") stays, after the job of its name.
    places = {name: place for place, name in enumerate(WORDS)}
    names = sorted(sections, key=lambda name: (places.get(name.partition(',')[0], len(places)), ',' in name))
    parts = [f'### Command: {sections[name].strip()}\n' for name in names]
    path.write_text(before + '\n'.join([INTRODUCTION, *parts]) + mark + rest, encoding='utf-8')


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('--rounds', type=int, default=6)
    parser.add_argument('--only', nargs='+', choices=WORDS, default=list(WORDS), metavar='JOB')
    parser.add_argument('--ways', nargs='+', metavar='WAY', help='all, and always the first one')
    parser.add_argument('--environments', type=Path, default=ROOT / '.venv' / 'bench')
    parser.add_argument('--out', type=Path, default=ROOT / 'benchmarks' / 'RESULTS.md')
    options = parser.parse_args()
    for job in options.only:
        where = machine.describe(ROOT)
        if job in IN_ONE_PROCESS:
            put(options.out, job, in_one_process(job, where))
            continue
        ways = JOBS[job]
        chosen = [way for way in ways if options.ways is None or way in options.ways or way == next(iter(ways))]
        seen, failed = measured(
            job, {way: ways[way] for way in chosen}, options.rounds, options.environments.absolute()
        )
        put(options.out, job, table(job, seen, failed, where))


if __name__ == '__main__':
    main()
