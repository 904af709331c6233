"""Files in place of matplotlib's pictures, which take longer than most trainings of the tests; no reports."""

from pathlib import Path

from matplotlib.figure import Figure

from runnerkit.flow.look import curve


def leave_out(patch):
    """Draw nothing, and write no report, while ``patch`` holds; returns what draws.

    A learning curve is not even composed, which is a third of what a small training takes.
    """

    def write(path):
        Path(path).write_bytes(b'\x89PNG, not drawn')
        return path

    drawing = Figure.savefig, curve.draw_curve
    patch.setattr(Figure, 'savefig', lambda self, path, **_: write(path))
    patch.setattr(curve, 'draw_curve', lambda lines, path, *_: write(path) if curve.curves_of(lines) else None)
    patch.setattr('runnerkit.flow.stages.terminal.write_runs', lambda work_dirs: Path(work_dirs[0]) / 'report.html')
    return drawing
