# The job `transformer` of benchmarks/whole.py: ten million parameters, AdamW, clipping, averaged weights, a cosine.

seed = 0
num_threads = 1

model = dict(
    type='Supervised',
    model=dict(type='../../configs/language/networks.py:ByteModel', width=320, blocks=8, heads=5, longest=32),
    loss=dict(type='CrossEntropyLoss'),
)
data = dict(
    batch_size=8,
    workers=0,
    train=dict(type='tokens.py:Tokens', number=240),
    val=dict(type='tokens.py:Tokens', number=48, seed=1),
)

optimizer = dict(type='AdamW', lr=1e-3, weight_decay=0.01)
optimizer_config = dict(grad_clip=dict(max_norm=1.0))
lr_config = dict(policy='CosineAnnealing', by_epoch=False, min_lr=0.0)
custom_hooks = [dict(type='EMAHook', momentum=0.01)]
runner = dict(type='EpochBasedRunner', max_epochs=1)
evaluation = dict(interval=1)
checkpoint_config = dict(interval=1)
log_config = dict(interval=10, hooks=[dict(type='TextLoggerHook')])
report = False  # by hand, there is a curve alone
