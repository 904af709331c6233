"""Methods of experiments as their users write them."""

import pytest
import torch
from experiments import Line, config, trained
from support import Tiny

from runnerkit.flow.experiment.methods import as_outputs


def test_what_a_batch_returns_is_logged_if_it_is_a_number():
    loss = torch.ones(1)
    assert as_outputs(None, 'Mine') == {}
    given = {'loss': loss, 'many': torch.ones(2), 'text': 'a', 'rate': 0.5, 'num_samples': 3}
    assert as_outputs(given, 'Mine') == {**given, 'log_vars': {'loss': loss, 'rate': 0.5}}
    assert as_outputs({'loss': loss, 'log_vars': {}}, 'Mine') == {'loss': loss, 'log_vars': {}, 'num_samples': 1}
    with pytest.raises(TypeError, match=r'Mine\.train_batch must return None or a dict such as dict\(loss=loss\), but'):
        as_outputs(loss, 'Mine')


def test_a_valid_of_another_base_is_an_evaluation_too():
    seen = []

    class Mixin:
        def valid(self):
            seen.append((torch.is_grad_enabled(), self.mode))

    class Both(Mixin, Line):
        pass

    made = Both(config(), model=Tiny())
    made.valid()
    assert seen == [(False, 'val')]
    with pytest.raises(RuntimeError, match=r'Both has no model: call its setup\(\) first'):
        Both(config()).valid()


class SavesShortly(Line):
    """As in the seed document, ``save`` takes nothing."""

    def save(self):
        self.saves = [*getattr(self, 'saves', []), self.iteration]
        super().save()


class SavesTwice(SavesShortly):
    def save(self, filename_tmpl=None):
        super().save(filename_tmpl=filename_tmpl or 'iter_{}.pth')


def test_a_save_of_ones_own_need_not_take_what_hooks_say(tmp_path):
    for kind in (SavesShortly, SavesTwice):
        made = trained(kind, tmp_path / kind.__name__, evaluation={'save_best': 'error', 'rule': 'less'})
        assert {4, 8, 12} <= set(made.saves)
        folder = tmp_path / kind.__name__
        assert {path.name for path in folder.glob('iter*')} == {'iter_4.pth', 'iter_8.pth', 'iter_12.pth'}
        assert len(list(folder.glob('best_error_iter_*.pth'))) == 1
        assert made.meta['hook_msgs']['best_ckpt'] == str(next(folder.glob('best*')))
        assert made.save(str(tmp_path / 'by hand')) == str(tmp_path / 'by hand' / 'iter_12.pth')
