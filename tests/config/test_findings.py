"""A finding as text."""

from runnerkit.config import Finding


def test_a_finding_names_the_key_its_place_and_the_way_out():
    finding = Finding('error', 'data.shufle', 'cfg.py:3', 'nobody reads it', "did you mean 'shuffle'?")
    assert str(finding) == "data.shufle (cfg.py:3): nobody reads it\n  did you mean 'shuffle'?"


def test_what_is_not_known_is_left_out():
    assert str(Finding('warning', '', '', 'nothing is evaluated', '')) == 'nothing is evaluated'
    assert str(Finding('warning', 'seed', '', 'a', 'b')) == 'seed: a\n  b'
