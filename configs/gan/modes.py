# Two competing networks learn to draw digits, in about a minute on two CPU cores:
#
#     python tools/train.py configs/gan/modes.py
#
# Each has a mode of the workflow, with its own data and optimizer. The work dir gets a picture, samples.png.

seed = 0
num_threads = 1

noise_size = 32
model = dict(type='networks.py:GAN', size=noise_size, width=16)

# A mode reads the data of its name, and updates the optimizer of its name.
workflow = [('dis', 1), ('gen', 1)]
data = dict(
    batch_size=50,
    dis=dict(type='digits.py:RealAndNoise', size=noise_size),
    gen=dict(type='digits.py:Noise', size=noise_size),
)
adam = dict(type='Adam', lr=1e-3, betas=(0.5, 0.999))
optimizer = dict(
    dis=dict(adam, params=['discriminator.*']),
    gen=dict(adam, params=['generator.*']),
)
optimizer_config = dict()
runner = dict(type='IterBasedRunner', max_iters=4200)  # 30 epochs of 70 batches for each network

checkpoint_config = dict(interval=1400, max_keep_ckpts=1)
log_config = dict(interval=100, hooks=[dict(type='TextLoggerHook')])
custom_hooks = [dict(type='samples.py:SampleGridHook', size=noise_size, interval=1400)]
