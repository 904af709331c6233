# The network of lenet.py, trained with AdamW and a one-cycle schedule, clipped gradients and early stopping:
#
#     runnerkit train configs/mnist/onecycle.py --auto-resume
#     runnerkit test configs/mnist/onecycle.py work_dirs/onecycle
#     runnerkit predict work_dirs/onecycle test --apply argmax --out work_dirs/onecycle/predictions.csv
#
# benchmarks/in_lightning/onecycle.py is the same in Lightning.

seed = 0
num_threads = 1

model = dict(
    type='Supervised',
    model=dict(type='networks.py:LeNet', channels=(16, 32), hidden=128, dropout=0.25),
    loss=dict(type='CrossEntropyLoss', label_smoothing=0.1),
    metrics=dict(accuracy=dict(type='MulticlassAccuracy', num_classes=10, average='micro')),
)

digits = 'digits.py:Digits'
data = dict(
    batch_size=64,
    train=dict(type=digits, part='train', augment=True),
    val=dict(type=digits, part='val'),
    test=dict(type=digits, part='test'),
)

optimizer = dict(type='AdamW', lr=0.01, weight_decay=0.01)
optimizer_config = dict(grad_clip=dict(max_norm=1.0))
lr_config = dict(policy='OneCycle', max_lr=0.01)
momentum_config = dict(policy='OneCycle')
runner = dict(type='EpochBasedRunner', max_epochs=12)
evaluation = dict(save_best='accuracy')
custom_hooks = [dict(type='EarlyStoppingHook', monitor='accuracy', patience=3)]
