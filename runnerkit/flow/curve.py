"""The learning curve of a work dir: read from its JSON logs, and drawn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from runnerkit.log_files import parsed_line

#: Values of a log line that are not drawn.
_NOT_CURVES = {
    'mode',
    'epoch',
    'iter',
    'time',
    'data_time',
    'memory',
    'eta',
    'step',
    'lr',
    'momentum',
    'eval_iter_num',
    'grad_norm',
}


def read_log(work_dir: str | Path) -> list[dict[str, Any]]:
    """The log lines of ``work_dir``, one for each moment of the run.

    If a run was started again, or resumed without removing the old lines, a line whose ``step`` goes back replaces all
    lines from that step on. Incomplete lines of a killed run are left out.
    """
    lines: dict[tuple[Any, ...], dict[str, Any]] = {}
    reached = 0
    for path in sorted(Path(work_dir).glob('*.log.json')):
        for text in path.read_text(encoding='utf-8', errors='replace').splitlines():
            line = parsed_line(text)
            if line is None or 'mode' not in line:
                continue
            step = line.get('step', reached)
            if step < reached:
                lines = {key: each for key, each in lines.items() if each.get('step', 0) < step}
            reached = step
            lines[line['mode'], line.get('epoch'), line.get('iter')] = line
    return list(lines.values())


def curves(lines: list[dict[str, Any]]) -> dict[str, list[tuple[int, float]]]:
    """Pairs of (completed iterations, value) for each ``<mode> <name>``, in the order of the log."""
    found: dict[str, list[tuple[int, float]]] = {}
    for line in lines:
        for name, value in line.items():
            if name not in _NOT_CURVES and isinstance(value, (int, float)):
                found.setdefault(f'{line["mode"]} {name}', []).append((line.get('step', line.get('iter', 0)), value))
    return found


def plot(work_dir: str | Path) -> Path | None:
    """Draw the learning curve of ``work_dir`` into ``curve.png`` there; None if there is nothing to draw.

    Raises:
        ModuleNotFoundError: matplotlib is not installed.
    """
    found = curves(read_log(work_dir))
    if not found:
        return None
    from matplotlib.figure import Figure  # not pyplot, which depends on the user's backend

    losses = {name: values for name, values in found.items() if 'loss' in name}
    scores = {name: values for name, values in found.items() if 'loss' not in name}
    figure = Figure(figsize=(10, 4))
    panels = figure.subplots(1, 2 if scores and losses else 1, squeeze=False)
    for panel, group in zip(panels[0], [part for part in (losses, scores) if part], strict=False):
        for name, points in group.items():
            steps, values = zip(*sorted(points), strict=True)
            panel.plot(steps, values, marker='.', label=f'{name} (last {values[-1]:.4g})')
        panel.set_xlabel('iteration')
        panel.legend()
        panel.grid(alpha=0.3)
    figure.tight_layout()
    path = Path(work_dir) / 'curve.png'
    figure.savefig(path, dpi=100)
    return path
