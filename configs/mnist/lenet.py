# A convolutional network learns 5,000 real handwritten digits:
#
#     python tools/train.py configs/mnist/lenet.py
#
# Data set and network are Python files next to this one, named by their path.

seed = 0
num_threads = 1  # such small layers gain nothing from a second thread, and lose much on a busy machine

# The model: any module, a loss of torch.nn and metrics of torchmetrics, each by its name.
model = dict(
    type='Supervised',
    model=dict(type='networks.py:LeNet', channels=(16, 32), hidden=128, dropout=0.25),
    loss=dict(type='CrossEntropyLoss'),
    metrics=dict(accuracy=dict(type='MulticlassAccuracy', num_classes=10, average='micro')),
)

# The data: 3,500 digits for training, 500 to choose the best epoch, 1,000 to test once at the end.
dataset = 'digits.py:Digits'
data = dict(
    batch_size=64,
    workers=0,  # a sample takes 0.1 ms: worker processes would only add their start-up time
    train=dict(type=dataset, part='train', augment=True),
    val=dict(type=dataset, part='val'),
    test=dict(type=dataset, part='test'),
)

# The optimizer: SGD whose learning rate warms up and then falls along a cosine, iteration by iteration.
optimizer = dict(type='SGD', lr=0.05, momentum=0.9, weight_decay=5e-4)
optimizer_config = dict(fused=None)  # torch's default steps, for the bits of tools/plain_train.py
lr_config = dict(
    policy='CosineAnnealing', by_epoch=False, min_lr=0.0, warmup='linear', warmup_iters=50, warmup_ratio=0.1
)
runner = dict(type='EpochBasedRunner', max_epochs=12)
workflow = [('train', 1)]
auto_scale_lr = dict(base_batch_size=64)  # with --auto-scale-lr, the rate grows with the number of processes

# Checkpoints and logs: the last three epochs, the best one, and two log lines per epoch.
checkpoint_config = dict(interval=1, max_keep_ckpts=3)
evaluation = dict(interval=1, save_best='accuracy')
log_config = dict(interval=25, hooks=[dict(type='TextLoggerHook'), dict(type='TensorboardLoggerHook')])
