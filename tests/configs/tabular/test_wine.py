import csv
import re
from pathlib import Path

from runnerkit.cli.main import main
from runnerkit.utils.imports import import_object

ROOT = Path(__file__).parents[3]
FILE = ROOT / 'configs/tabular/wine.py'


def test_the_commands_of_the_config_train_test_and_predict(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / 'configs').symlink_to(ROOT / 'configs')
    commands = re.findall(r'^# +runnerkit (.*)', FILE.read_text(), flags=re.MULTILINE)
    assert [command.split()[0] for command in commands] == ['train', 'test', 'predict']
    for command in commands:
        assert main(command.split()) == 0
    said = capsys.readouterr()
    assert 'WARNING' not in said.err
    assert 'Run stopped: loss has not improved for 3 evaluations' in said.err
    accuracy = float(re.search(r'test accuracy: (.*)', said.out)[1])
    assert accuracy > 0.85
    rows = list(csv.DictReader((tmp_path / 'work_dirs/wine/predictions.csv').open()))
    classes = import_object(f'{FILE.parent}/table.py:wines')('test').tensors[1].tolist()
    hits = [int(row['prediction']) == label for row, label in zip(rows, classes, strict=True)]
    assert abs(sum(hits) / len(hits) - accuracy) < 1e-4
