import re
from importlib import import_module
from pathlib import Path

from runnerkit.compat.mmcv.aliases import ALIASES, MMCV_ALIASES, VEGA_ALIASES, homes_of

GUIDE = Path(__file__).resolve().parents[3] / 'docs' / 'mmcv.md'
HOMES = {home for homes in ALIASES.values() for home in ((homes,) if isinstance(homes, str) else homes)}


def test_every_home_exists():
    for home in HOMES | {*MMCV_ALIASES.values()}:
        import_module(f'runnerkit.{home}')


def test_what_configs_of_vegas_runs_name_is_found():
    for path, home in VEGA_ALIASES.items():
        assert import_module(f'runnerkit.{path}') is import_module(f'runnerkit.{home}')


def test_homes():
    assert homes_of('runner.hooks') == ('hooks',)
    assert homes_of('runner.hooks.logger.text') == ('hooks.logger.text',)
    assert homes_of('runner.optimizer.builder') == ('optim.builder',)
    assert homes_of('engine') == ('evaluation', 'distributed.collectives')
    assert homes_of('engine.nothing') == ()
    assert homes_of('runner') == homes_of('') == homes_of('hooks') == ()
    assert not set(MMCV_ALIASES) & set(ALIASES)


def test_the_migration_guide_has_the_same_table():
    first, _, _ = GUIDE.read_text(encoding='utf-8').partition('## 2.')
    rows = [line.split(' | ') for line in first.splitlines() if line.startswith('| `mmcv.')]
    told = {
        path: tuple(re.findall('`runnerkit.([^`]+)`', new))
        for old, new in rows
        for path in re.findall('`mmcv.([^`]+)`', old)
    }
    expected = {old: (homes,) if isinstance(homes, str) else homes for old, homes in ALIASES.items()}
    assert told == expected
