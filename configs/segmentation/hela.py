# A small U-Net finds the cells in real microscope frames, counting iterations instead of epochs:
#
#     python tools/train.py configs/segmentation/hela.py

seed = 0

model = dict(
    type='Supervised',
    model=dict(type='networks.py:UNet', width=8),
    loss=dict(type='networks.py:MaskLoss', dice_weight=1.0),
    metrics=dict(iou=dict(type='BinaryJaccardIndex')),
    inputs='image',
    targets='mask',
)

# Random crops of frames 1 to 15 to train on; whole frames, 16 to choose the best weights, 17 to 20 to test.
dataset = 'cells.py:Cells'
iterations = 300
data = dict(
    batch_size=4,
    workers=0,
    train=dict(type=dataset, part='train', crop=128, length=4 * iterations),
    val=dict(type=dataset, part='val'),
    test=dict(type=dataset, part='test'),
    val_dataloader=dict(batch_size=1),
    test_dataloader=dict(batch_size=1),
)

optimizer = dict(type='SGD', lr=0.1, momentum=0.9, weight_decay=1e-4)
optimizer_config = dict()
lr_config = dict(policy='poly', power=0.9, min_lr=0.0, by_epoch=False)
runner = dict(type='IterBasedRunner', max_iters=iterations)
workflow = [('train', 1)]

checkpoint_config = dict(interval=100, max_keep_ckpts=1)
evaluation = dict(interval=100, save_best='iou')
log_config = dict(interval=20, hooks=[dict(type='TextLoggerHook')])
