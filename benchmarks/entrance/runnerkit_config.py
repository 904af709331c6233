# The same as a config: runnerkit train runnerkit_config.py --auto-resume

seed = 0
model = dict(
    type='Supervised',
    model=dict(type='job.py:Net'),
    loss=dict(type='CrossEntropyLoss'),
    metrics=dict(accuracy=dict(type='MulticlassAccuracy', num_classes=3, average='micro')),
)
data = dict(
    batch_size=16,
    train=dict(type='job.py:wines', part='train'),
    val=dict(type='job.py:wines', part='val'),
)
optimizer = dict(type='AdamW', lr=0.01)
runner = dict(type='EpochBasedRunner', max_epochs=3)
evaluation = dict(interval=1)
checkpoint_config = dict(interval=2, by_epoch=False)
