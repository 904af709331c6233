"""A small ResNet of mmcls 0.25 on the digits of configs/mnist, in its own grammar. docs/mmcv.md says how to run it."""

model = dict(
    type='ImageClassifier',
    backbone=dict(
        type='ResNet_CIFAR',
        depth=18,
        in_channels=1,
        stem_channels=16,
        base_channels=16,
        num_stages=4,
        out_indices=(3,),
        style='pytorch',
    ),
    neck=dict(type='GlobalAveragePooling'),
    head=dict(
        type='LinearClsHead',
        num_classes=10,
        in_channels=128,
        loss=dict(type='CrossEntropyLoss', loss_weight=1.0),
        topk=(1,),
    ),
)

normalize = dict(type='Normalize', mean=[33.46], std=[78.87], to_rgb=False)
train_pipeline = [
    dict(type='RandomCrop', size=28, padding=2),
    normalize,
    dict(type='ImageToTensor', keys=['img']),
    dict(type='ToTensor', keys=['gt_label']),
    dict(type='Collect', keys=['img', 'gt_label']),
]
test_pipeline = [normalize, dict(type='ImageToTensor', keys=['img']), dict(type='Collect', keys=['img'])]
data = dict(
    samples_per_gpu=64,
    workers_per_gpu=1,
    train=dict(type='MNIST', data_prefix='data/mnist', pipeline=train_pipeline),
    val=dict(type='MNIST', data_prefix='data/mnist', pipeline=test_pipeline, test_mode=True),
    test=dict(type='MNIST', data_prefix='data/mnist', pipeline=test_pipeline, test_mode=True),
)

optimizer = dict(type='SGD', lr=0.1, momentum=0.9, weight_decay=1e-4)
optimizer_config = dict(grad_clip=dict(max_norm=5.0))
lr_config = dict(policy='CosineAnnealing', min_lr=0.0, warmup='linear', warmup_iters=20, warmup_ratio=0.1)
runner = dict(type='EpochBasedRunner', max_epochs=3)
custom_hooks = [dict(type='PreciseBNHook', num_samples=512, interval=1, priority='ABOVE_NORMAL')]

evaluation = dict(interval=1, metric='accuracy', metric_options=dict(topk=(1,)), save_best='accuracy_top-1')
checkpoint_config = dict(interval=1)
log_config = dict(interval=10, hooks=[dict(type='TextLoggerHook')])
dist_params = dict(backend='gloo')
log_level = 'INFO'
load_from = None
resume_from = None
workflow = [('train', 1)]
