# A search for learning rate, width and batch size of the LeNet in configs/mnist, in 24 trials, two at a time:
#
#     python tools/search.py configs/search/hpo.py
#
# Then three configs are each trained with three seeds and the same number of epochs: the best found, the unchanged
# config, which was tuned manually, and a beginner's first guess of the learning rate. All nine models are evaluated on
# the 1,000 test digits. These are held out until then: the search uses 500 other digits.

lenet = '{{ fileDirname }}/../mnist/lenet.py'
two_processes = dict(type='Local', workers=2)
last_epoch = {'evaluation.save_best': None}  # test the last epoch: 500 digits are too few to choose one

pipeline = ['search', 'best', 'default', 'guess', 'test']

search = dict(
    pipe_step=dict(type='SearchPipeStep'),
    config=lenet,
    objectives=dict(loss='min'),  # on 500 digits; steps of their accuracy are too large to compare trials
    search_space={
        'optimizer.lr': dict(type='Float', low=0.001, high=0.5, log=True),
        'model.model.channels': [[8, 16], [16, 32], [32, 64], [48, 96]],
        'data.batch_size': [16, 32, 64, 128],
    },
    # After 4 and 8 of its 12 epochs, a trial continues if it is in the better half of the trials that got there.
    search_algorithm=dict(type='TPE', trials=24, pruner=dict(type='ASHA', min_resource=4, reduction_factor=2)),
    overrides=last_epoch,
    executor=two_processes,
    seed=0,
)

best = dict(pipe_step=dict(type='TrainPipeStep'), repeats=3, executor=two_processes, seed=1)

default = dict(
    pipe_step=dict(type='TrainPipeStep'),
    config=lenet,
    hps=dict(),
    objectives=dict(loss='min'),
    repeats=3,
    overrides=last_epoch,
    executor=two_processes,
    seed=1,
)

guess = dict(default, hps={'optimizer.lr': 0.01})

test = dict(
    pipe_step=dict(type='BenchmarkPipeStep'),
    source=['best', 'default', 'guess'],
    split='test',
    objectives=dict(accuracy='max'),
)
