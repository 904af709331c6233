# The GAN of modes.py as an Experiment, adversaries.py, with identical losses. Here an iteration is a step of both
# networks.

_base_ = ['modes.py']

runner = dict(_delete_=True, type='adversaries.py:Adversaries')
training = dict(max_iteration=2100, save_interval=700)
batch_size = 50
data = None
workflow = None
optimizer_config = None  # train_batch updates the weights itself
checkpoint_config = dict(interval=700)
custom_hooks = [dict(type='samples.py:SampleGridHook', size=32, interval=700)]
