"""MMEngine's Runner with its default hooks and its averages. Its sleep of two seconds before a pass is switched off."""

import time

from job import begun
from mmengine.evaluator import BaseMetric
from mmengine.model import BaseModel
from mmengine.runner import Runner
from torch.utils.data import DataLoader

time.sleep = lambda seconds: None


class Model(BaseModel):
    def __init__(self, job, net):
        super().__init__()
        self.net, self.loss = net, job.loss

    def forward(self, x, y, mode='tensor'):
        out = self.net(x)
        return {'loss': self.loss(out, y)} if mode == 'loss' else (out, y)


class Score(BaseMetric):
    def __init__(self, job):
        super().__init__()
        self.loss = job.loss
        self.key, self.metric = job.metric() if job.metric else (None, None)

    def process(self, data_batch, data_samples):
        out, y = data_samples
        self.results.append((float(self.loss(out, y)) * len(y), len(y)))
        if self.metric is not None:
            self.metric.update(out, y)

    def compute_metrics(self, results):
        total, number = map(sum, zip(*results, strict=True))
        scores = {'loss': total / number}
        if self.metric is not None:
            scores[self.key] = float(self.metric.compute())
            self.metric.reset()
        return scores


def main(name, work_dir):
    job = begun(name)
    train, val = job.data()
    model = Model(job, job.network(train))
    train = DataLoader(train, job.batch, shuffle=True)
    total = job.epochs * len(train)
    schedules = [{'type': 'CosineAnnealingLR', 'T_max': total, 'begin': 0, 'end': total, 'by_epoch': False}]
    if job.warm_up:
        schedules.append({'type': 'LinearLR', 'start_factor': 0.1, 'end': job.warm_up, 'by_epoch': False})
    boards = ['LocalVisBackend', *(['TensorboardVisBackend'] if job.has_board else [])]
    score = Score(job)
    update = {'optimizer': job.optimizer(model.parameters())}
    saves = {'type': 'CheckpointHook', 'interval': 1, **({'save_best': score.key} if score.key == 'accuracy' else {})}
    Runner(
        model,
        work_dir=work_dir,
        train_dataloader=train,
        train_cfg={'by_epoch': True, 'max_epochs': job.epochs},
        val_dataloader=DataLoader(val, job.val_batch),
        val_cfg={},
        val_evaluator=[score],
        optim_wrapper={**update, **({'clip_grad': {'max_norm': job.clip}} if job.clip else {})},
        param_scheduler=schedules,
        default_hooks={'checkpoint': saves, 'logger': {'type': 'LoggerHook', 'interval': job.log_every}},
        custom_hooks=[{'type': 'EMAHook', 'momentum': job.momentum}] if job.momentum else None,
        visualizer={'type': 'Visualizer', 'vis_backends': [{'type': name} for name in boards]},
        default_scope='mmengine',
        randomness={'seed': 0},
    ).train()
