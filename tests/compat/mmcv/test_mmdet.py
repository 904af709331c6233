"""mmdet 2.28.2, unchanged: a one-stage detector needs no compiled ops to train, a two-stage one does."""

import json
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from compat.mmcv.downstream import folder_of, losses, scores, train
from PIL import Image

CONFIG = """
_base_ = ['{base}/models/{model}_r50_fpn.py', '{base}/datasets/coco_detection.py', '{base}/schedules/schedule_1x.py',
          '{base}/default_runtime.py']
normalize = dict(type='Normalize', mean=[40.0] * 3, std=[60.0] * 3, to_rgb=True)
train_pipeline = [
    dict(type='LoadImageFromFile'), dict(type='LoadAnnotations', with_bbox=True),
    dict(type='Resize', img_scale=(128, 128), keep_ratio=True), dict(type='RandomFlip', flip_ratio=0.5), normalize,
    dict(type='Pad', size_divisor=32), dict(type='DefaultFormatBundle'),
    dict(type='Collect', keys=['img', 'gt_bboxes', 'gt_labels']),
]
test_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='MultiScaleFlipAug', img_scale=(128, 128), flip=False, transforms=[
        dict(type='Resize', keep_ratio=True), normalize, dict(type='Pad', size_divisor=32),
        dict(type='ImageToTensor', keys=['img']), dict(type='Collect', keys=['img'])]),
]
boxes = dict(ann_file='{root}/boxes.json', img_prefix='{root}/images/', classes=('blue', 'green'))
data = dict(
    samples_per_gpu=2,
    workers_per_gpu=0,
    train=dict(pipeline=train_pipeline, **boxes),
    val=dict(pipeline=test_pipeline, **boxes),
    test=dict(pipeline=test_pipeline, **boxes),
)
optimizer = dict(lr=0.02)
lr_config = dict(warmup_iters=5)
log_config = dict(interval=2)
backbone = dict(depth=18, base_channels=16, init_cfg=None)
neck = dict(in_channels=[16, 32, 64, 128], out_channels=32)
"""

RETINANET = """
model = dict(backbone=backbone, neck=neck,
             bbox_head=dict(num_classes=2, in_channels=32, feat_channels=32, stacked_convs=1))
runner = dict(max_epochs=2)
custom_hooks = [dict(type='NumClassCheckHook'), dict(type='CheckInvalidLossHook', interval=1),
                dict(type='ExpMomentumEMAHook', momentum=0.01, priority=49)]
"""

FASTER_RCNN = """
model = dict(
    backbone=backbone, neck=neck, rpn_head=dict(in_channels=32, feat_channels=32),
    roi_head=dict(bbox_roi_extractor=dict(out_channels=32),
                  bbox_head=dict(in_channels=32, fc_out_channels=32, num_classes=2)))
runner = dict(max_epochs=2)
evaluation = dict(interval=2)
"""


def coloured_boxes(root, number=8):
    random = np.random.default_rng(0)
    (root / 'images').mkdir()
    images, boxes = [], []
    for index in range(number):
        image = random.integers(0, 80, (128, 128, 3)).astype(np.uint8)
        (x, y), (w, h), kind = random.integers(0, 80, 2), random.integers(24, 48, 2), random.integers(0, 2)
        image[y : y + h, x : x + w, 2 - kind] = 255
        Image.fromarray(image).save(root / 'images' / f'{index}.png')
        images.append(dict(id=index, file_name=f'{index}.png', width=128, height=128))
        box = [int(value) for value in (x, y, w, h)]
        boxes.append(
            dict(id=index + 1, image_id=index, category_id=int(kind) + 1, bbox=box, area=int(w * h), iscrowd=0)
        )
    kinds = [dict(id=1, name='blue'), dict(id=2, name='green')]
    (root / 'boxes.json').write_text(json.dumps(dict(images=images, annotations=boxes, categories=kinds)))


def run(tmp_path, name, model, *arguments):
    base = folder_of('mmdet') / '.mim' / 'configs' / '_base_'
    coloured_boxes(tmp_path)
    (tmp_path / 'config.py').write_text(CONFIG.format(base=base, root=tmp_path, model=name) + model)
    return train('mmdet', 'config.py', tmp_path, *arguments)


def test_a_retinanet_trains_without_compiled_ops(tmp_path):
    lines = run(tmp_path, 'retinanet', RETINANET, '--no-validate')
    assert len(losses(lines)) == 4
    assert losses(lines)[-1] < losses(lines)[0]
    assert (tmp_path / 'run' / 'epoch_2.pth').is_file()


def test_a_faster_rcnn_trains_and_is_evaluated_with_compiled_ops(tmp_path):
    folder_of('mmdet')
    if not list(Path(find_spec('mmcv').origin).parent.glob('_ext*')):
        pytest.skip('the installed mmcv has no compiled ops')
    lines = run(tmp_path, 'faster_rcnn', FASTER_RCNN)
    assert losses(lines)[-1] < losses(lines)[0]
    assert len(scores(lines, 'bbox_mAP')) == 1
