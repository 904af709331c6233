# Trains the network that darts.py has found, from scratch, and tests it on digits held out from the search:
#
#     python tools/train.py configs/search/darts_found.py
#     python tools/test.py configs/search/darts_found.py work_dirs/darts_found
#
# The operations are those in desc.json of the search with seed 0.

_base_ = ['../mnist/lenet.py']

model = dict(
    model=dict(
        _delete_=True,
        type='supernet.py:FoundNetwork',
        operations=['conv_5', 'conv_3', 'conv_5', 'conv_5'],
        width=8,
    ),
)
