# A small residual network learns MNIST: the trainings of prune_nas.yml, with the whole network.
#
#     python tools/train.py configs/search/resnet.py

_base_ = ['../mnist/lenet.py']

model = dict(
    model=dict(
        _delete_=True,
        type='runnerkit.compat.vega.networks.build_network',
        modules=['backbone'],
        backbone=dict(
            type='networks.py:PruneResNet',
            base_chn=[8, 8, 16, 16],
            base_chn_node=[8, 8, 16],
            num_classes=10,
        ),
    ),
)
runner = dict(max_epochs=2)
checkpoint_config = dict(max_keep_ckpts=1)
log_config = dict(interval=25, hooks=[dict(type='TextLoggerHook')])
