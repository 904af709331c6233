"""A config's text as values by key, without running it."""

from runnerkit.config.settings import differing, settings_in


def test_values_by_dotted_key():
    text = "a = 1\nb = dict(c=(1, -2), d={'e': None, **a})\nhooks = [dict(type='X'), dict(type='Y')]\nf = g('/')\n"
    assert settings_in(text) == {
        'a': 1,
        'b.c': [1, -2],
        'b.d.e': None,
        'b.d.**': 'a',
        'hooks.0.type': 'X',
        'hooks.1.type': 'Y',
        'f': "g('/')",
    }


def test_a_text_that_is_no_python_has_no_values():
    assert settings_in('{') == settings_in('\0') == settings_in('(' * 10_000) == {}


def test_differing_keys():
    assert differing([{'a': 1, 'b': 2}, {'a': 1, 'b': 3, 'c': 4}, {'a': 1, 'b': 2}]) == ['b', 'c']
    assert differing([]) == []
