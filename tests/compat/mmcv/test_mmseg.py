"""mmseg 0.30.0, unchanged, with an mmcv that has no compiled ops."""

import numpy as np
import pytest
from compat.mmcv.downstream import folder_of, losses, scores, train
from PIL import Image

CONFIG = """
_base_ = ['{base}/models/fcn_r50-d8.py', '{base}/default_runtime.py']
norm_cfg = dict(type='BN', requires_grad=True)
model = dict(
    pretrained=None,
    backbone=dict(type='ResNet', depth=18, base_channels=16, norm_cfg=norm_cfg),
    decode_head=dict(in_channels=128, channels=16, num_classes=2, norm_cfg=norm_cfg),
    auxiliary_head=dict(in_channels=64, channels=16, num_classes=2, norm_cfg=norm_cfg),
)
normalize = dict(type='Normalize', mean=[40.0] * 3, std=[50.0] * 3, to_rgb=True)
train_pipeline = [
    dict(type='LoadImageFromFile'), dict(type='LoadAnnotations'), dict(type='Resize', img_scale=(64, 64)),
    dict(type='RandomFlip', prob=0.5), normalize, dict(type='DefaultFormatBundle'),
    dict(type='Collect', keys=['img', 'gt_semantic_seg']),
]
test_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='MultiScaleFlipAug', img_scale=(64, 64), flip=False, transforms=[
        dict(type='Resize', keep_ratio=True), normalize, dict(type='ImageToTensor', keys=['img']),
        dict(type='Collect', keys=['img'])]),
]
squares = dict(type='CustomDataset', data_root='{root}', img_dir='images', ann_dir='labels', img_suffix='.png',
               seg_map_suffix='.png', classes=('dark', 'bright'), palette=[[0, 0, 0], [255, 255, 255]])
data = dict(
    samples_per_gpu=4,
    workers_per_gpu=1,
    train=dict(pipeline=train_pipeline, **squares),
    val=dict(pipeline=test_pipeline, **squares),
    test=dict(pipeline=test_pipeline, **squares),
)
optimizer = dict(type='SGD', lr=0.05, momentum=0.9)
optimizer_config = dict()
lr_config = dict(policy='poly', power=0.9, min_lr=1e-4, by_epoch=False)
runner = dict(type='IterBasedRunner', max_iters=40)
checkpoint_config = dict(by_epoch=False, interval=20)
evaluation = dict(interval=20, metric='mIoU', pre_eval=True, save_best='mIoU')
log_config = dict(interval=10)
"""


def bright_squares(root, number=8):
    random = np.random.default_rng(0)
    for folder in ('images', 'labels'):
        (root / folder).mkdir()
    for index in range(number):
        image = random.integers(0, 80, (64, 64, 3)).astype(np.uint8)
        label = np.zeros((64, 64), np.uint8)
        x, y = random.integers(0, 32, 2)
        image[y : y + 28, x : x + 28] = 255
        label[y : y + 28, x : x + 28] = 1
        Image.fromarray(image).save(root / 'images' / f'{index}.png')
        Image.fromarray(label).save(root / 'labels' / f'{index}.png')


def test_an_fcn_finds_the_squares(tmp_path):
    base = folder_of('mmseg') / '.mim' / 'configs' / '_base_'
    bright_squares(tmp_path)
    (tmp_path / 'fcn.py').write_text(CONFIG.format(base=base, root=tmp_path))
    lines = train('mmseg', 'fcn.py', tmp_path)
    assert losses(lines)[-1] < losses(lines)[0] / 2
    assert len(scores(lines, 'mIoU')) == 2
    assert [line['iter'] for line in lines if line.get('mode') == 'train'] == [10, 20, 30, 40]
    files = {path.name for path in (tmp_path / 'run').glob('*.pth')}
    assert {'iter_20.pth', 'iter_40.pth', 'latest.pth'} <= files
    assert scores(lines, 'mIoU') != pytest.approx([0, 0])
