"""The configs of mmcls, mmseg and mmdet, through what can be checked without their models and data."""

from collections import Counter
from importlib.util import find_spec
from pathlib import Path

import pytest

from runnerkit.config import Config
from runnerkit.flow.preflight import Plan, find

PACKAGES = ('mmcls', 'mmseg', 'mmdet')

#: Configs that have keys of no effect: what their authors meant does not happen, with MMCV's tools mostly neither.
WRONG = {
    # runs on a Graphcore IPU
    'vit-base-p16_ft-4xb544-ipu_in1k.py': {
        'data.drop_last',
        'data.train_dataloader.mode',
        'runner.ipu_model_cfg',
        'runner.options_cfg',
        'fp16.velocity_accum_type',
        'fp16.accum_type',
    },
    # options that only mmdet's own function for loaders has
    'faster_rcnn_r50_fpn_32x2_cas_1x_openimages.py': {'data.train_dataloader.class_aware_sampler'},
    'faster_rcnn_r50_fpn_32x2_cas_1x_openimages_challenge.py': {'data.train_dataloader.class_aware_sampler'},
    # the name before samples_per_gpu
    'mask_rcnn_r50_fpn_15e_deepfashion.py': {'data.imgs_per_gpu'},
    'deepfashion.py': {'data.imgs_per_gpu'},
    # for decay_mult
    **{
        f'dnl_{depth}-d8_769x769_80k_cityscapes.py': {
            f'optimizer.paramwise_cfg.custom_keys.{part}.wd_mult' for part in ('theta', 'phi')
        }
        for depth in ('r50', 'r101')
    },
    # for _delete_
    **{
        f'twins-{name}_in1k.py': {'optimizer.paramwise_cfg._delete'}
        for name in (
            'pcpvt-base_8xb128',
            'pcpvt-large_16xb64',
            'pcpvt-small_8xb128',
            'svt-base_8xb128',
            'svt-large_16xb64',
            'svt-small_8xb128',
        )
    },
}

#: Warnings that are to the point, and how many configs get them: the key would have an effect elsewhere; data.val needs
#: an ``evaluation`` here, for which mmcls and mmdet have a default.
TO_THE_POINT = {'train_cfg': 13, 'test_cfg': 1, 'total_iters': 2, 'sampler': 2, 'data.val': 15}


def configs():
    for package in PACKAGES:
        spec = find_spec(package)
        if spec is None:
            pytest.skip(f'{package} is not installed: docs/mmcv.md says how')
        yield from sorted((Path(spec.origin).parent / '.mim' / 'configs').rglob('*.py'))


@pytest.mark.filterwarnings('ignore')
def test_the_checks_that_need_neither_model_nor_data():
    errors, warnings, count, warned = {}, Counter(), 0, 0
    for path in configs():
        try:
            cfg = Config.fromfile(path, import_custom_modules=False)
        except (KeyError, FileNotFoundError):  # a base is missing
            continue
        count += 1
        findings = find(Plan(cfg=cfg))
        wrong = {finding.key for finding in findings if finding.level == 'error'}
        if wrong:
            errors[path.name] = wrong
        told = [finding.key for finding in findings if finding.level == 'warning']
        warnings.update(told)
        warned += any(key not in TO_THE_POINT for key in told)
    assert count > 1800
    assert errors == WRONG
    assert {key: warnings[key] for key in TO_THE_POINT} == TO_THE_POINT
    assert warned < count / 100
