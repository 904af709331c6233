# Learns from ratings as they arrive: see docs/online.md.
model = dict(type='ratings.py:Liking')
data = dict(
    batch_size=32,
    workers=0,
    train=dict(
        type='Stream',
        source=dict(type='EndpointSource', url='tcp://127.0.0.1:7007'),
        decode=dict(type='ratings.py:Decode'),
    ),
)
optimizer = dict(type='Adagrad', lr=0.1)
lr_config = dict(policy='fixed')
runner = dict(type='IterBasedRunner')  # until the stream ends
checkpoint_config = dict(interval=25, async_save=True, max_keep_ckpts=2)
log_config = dict(interval=100, hooks=[dict(type='TextLoggerHook')])
custom_hooks = [dict(type='ControlHook')]
seed = 3
