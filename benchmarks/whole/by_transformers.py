"""The Trainer of Hugging Face's transformers; it has no averages, so that a callback calls torch's."""

import torch
from job import begun
from torch import nn
from torch.optim.lr_scheduler import LambdaLR
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from transformers import Trainer, TrainerCallback, TrainingArguments, set_seed


class Model(nn.Module):
    def __init__(self, job, net):
        super().__init__()
        self.net, self.loss = net, job.loss

    def forward(self, x, labels=None):
        out = self.net(x)
        return {'loss': self.loss(out, labels), 'logits': out}


class Averages(TrainerCallback):
    def __init__(self, job, model):
        self.average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(1 - job.momentum))

    def on_step_end(self, args, state, control, model=None, **kwargs):
        self.average.update_parameters(model)


def collate(samples):
    x, y = zip(*samples, strict=True)
    return {'x': torch.stack(x), 'labels': torch.stack(y)}


def main(name, work_dir):
    job = begun(name)
    set_seed(0)
    train, val = job.data()
    model = Model(job, job.network(train))
    metric = job.metric and job.metric()
    total = job.epochs * -(-len(train) // job.batch)
    optimizer = job.optimizer(model.parameters())

    def scores(prediction):
        outputs, targets = torch.from_numpy(prediction.predictions), torch.from_numpy(prediction.label_ids)
        return {metric[0]: float(metric[1](outputs, targets))}

    arguments = TrainingArguments(
        work_dir,
        num_train_epochs=job.epochs,
        per_device_train_batch_size=job.batch,
        per_device_eval_batch_size=job.val_batch,
        max_grad_norm=job.clip or 0.0,
        eval_strategy='epoch',
        save_strategy='epoch',
        logging_steps=job.log_every,
        prediction_loss_only=metric is None,
        disable_tqdm=True,
        seed=0,
        use_cpu=True,
        report_to='tensorboard' if job.has_board else 'none',
    )
    Trainer(
        model,
        arguments,
        collate,
        train,
        val,
        compute_metrics=scores if metric else None,
        callbacks=[Averages(job, model)] if job.momentum else None,
        optimizers=(optimizer, LambdaLR(optimizer, lambda step: job.share(step, total))),
    ).train()
