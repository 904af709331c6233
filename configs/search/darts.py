# Finds the operations of a small network for MNIST by gradient descent (DARTS), in about two minutes on a CPU:
#
#     python tools/train.py configs/search/darts.py
#
# It is one training with two optimizers, each with a workflow mode of the same name. The weights of the network learn
# on the training digits, the parameters of the architecture on the validation digits. The work dir gets the result,
# desc.json; darts_found.py trains it.

seed = 0
num_threads = 1

model = dict(type='supernet.py:SuperNetwork', depth=4, width=8)

workflow = [('weights', 1), ('architecture', 1)]
dataset = '../mnist/digits.py:Digits'
data = dict(
    batch_size=64,
    workers=0,
    weights=dict(type=dataset, part='train', augment=True),
    architecture=dict(type=dataset, part='val'),
)
optimizer = dict(
    weights=dict(type='SGD', lr=0.05, momentum=0.9, weight_decay=5e-4, params=['network.*']),
    architecture=dict(type='Adam', lr=1e-2, betas=(0.5, 0.999), weight_decay=1e-3, params=['architecture']),
)
optimizer_config = dict()
runner = dict(type='IterBasedRunner', max_iters=1100)  # 10 epochs of 55 batches for each optimizer

checkpoint_config = dict(interval=110, max_keep_ckpts=1)
log_config = dict(interval=55, hooks=[dict(type='TextLoggerHook')])
custom_hooks = [dict(type='supernet.py:DescriptionHook')]
