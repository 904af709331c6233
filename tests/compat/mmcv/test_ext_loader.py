from importlib.util import find_spec

import pytest

from runnerkit.compat.mmcv.ext_loader import check_ops_exist, load_ext


def test_ops_import_without_being_compiled_and_say_so_when_called(compat):
    from mmcv.ops import ext_module, nms

    assert check_ops_exist() is False
    with pytest.raises(ModuleNotFoundError, match=r'nms is a compiled op, .* install mmcv-full==1\.7\.2') as caught:
        nms([])
    assert caught.value.name == 'mmcv._ext'
    assert not hasattr(ext_module, '__path__')


def test_compiled_ops_are_used(compat, site):
    (site / 'mmcv' / '_ext.py').write_text('def nms(boxes):\n    return sorted(boxes)\nsoftnms = nms')
    from mmcv.ops import nms

    assert check_ops_exist() is True
    assert nms([2, 1]) == [1, 2]


def test_ops_of_another_version_are_refused(compat, site):
    (site / 'mmcv' / '_ext.py').write_text('nms = None')
    with pytest.raises(AssertionError, match='lacks softnms: it was compiled from another version'):
        load_ext('_ext', ['nms', 'softnms'])


@pytest.mark.skipif(find_spec('mmcv') is not None, reason='there is one')
def test_without_any_mmcv(process):
    assert check_ops_exist() is False
