"""The Trainer of Hugging Face's transformers."""

import sys

import torch
import torch.nn.functional as F
from job import BATCH_SIZE, EPOCHS, LR, Net, wines
from torch import nn
from transformers import Trainer, TrainingArguments, set_seed
from transformers.trainer_utils import get_last_checkpoint


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = Net()

    def forward(self, x, labels=None):
        logits = self.net(x)
        return {'loss': F.cross_entropy(logits, labels), 'logits': logits}


def collate(samples):
    x, y = zip(*samples, strict=True)
    return {'x': torch.stack(x), 'labels': torch.stack(y)}


def accuracy(prediction):
    return {'accuracy': (prediction.predictions.argmax(1) == prediction.label_ids).mean()}


if __name__ == '__main__':
    folder = sys.argv[1]
    set_seed(0)
    model = Model()
    arguments = TrainingArguments(
        folder,
        num_train_epochs=EPOCHS,
        per_device_train_batch_size=BATCH_SIZE,
        learning_rate=LR,
        lr_scheduler_type='constant',
        eval_strategy='epoch',
        save_strategy='steps',
        save_steps=2,
        logging_steps=1,
        seed=0,
        use_cpu=True,
        report_to='none',
    )
    trainer = Trainer(model, arguments, collate, wines('train'), wines('val'), compute_metrics=accuracy)
    trainer.train(resume_from_checkpoint=get_last_checkpoint(folder))
    torch.save(model.net.state_dict(), f'{folder}/weights.pt')
