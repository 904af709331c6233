# A small network classifies wines by cultivar, from 13 measurements of each wine:
#
#     runnerkit train configs/tabular/wine.py --auto-resume
#     runnerkit test configs/tabular/wine.py work_dirs/wine
#     runnerkit predict work_dirs/wine test --apply argmax --out work_dirs/wine/predictions.csv
#
# benchmarks/in_lightning/wine.py is the same in Lightning.

seed = 0

model = dict(
    type='Supervised',
    model=[
        dict(type='Linear', in_features=13, out_features=32),
        dict(type='ReLU'),
        dict(type='Linear', in_features=32, out_features=3),
    ],
    loss=dict(type='CrossEntropyLoss'),
    metrics=dict(accuracy=dict(type='MulticlassAccuracy', num_classes=3, average='micro')),
)

wines = 'table.py:wines'
data = dict(
    batch_size=16,
    train=dict(type=wines, part='train'),
    val=dict(type=wines, part='val'),
    test=dict(type=wines, part='test'),
)

optimizer = dict(type='AdamW', lr=0.01)
lr_config = dict(policy='CosineAnnealing', min_lr=0.0)
runner = dict(type='EpochBasedRunner', max_epochs=30)
evaluation = dict(save_best='loss')
custom_hooks = [dict(type='EarlyStoppingHook', monitor='loss', patience=3)]
