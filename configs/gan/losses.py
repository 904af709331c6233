# The GAN of modes.py in one step, train_step of the model, which returns a loss for each optimizer: all backward passes
# run first, then all steps.

_base_ = ['modes.py']

workflow = [('train', 1)]
data = dict(_delete_=True, batch_size=50, train=dict(type='digits.py:RealAndNoise', size=32))
runner = dict(max_iters=2100)
checkpoint_config = dict(interval=700)
custom_hooks = [dict(type='samples.py:SampleGridHook', size=32, interval=700)]
