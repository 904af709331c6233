"""MMEngine's Runner, with its loop by iterations, which skips the batches that a resumed run has seen."""

import sys

import torch
import torch.nn.functional as F
from job import BATCH_SIZE, EPOCHS, LR, Net, wines
from mmengine.evaluator import BaseMetric
from mmengine.model import BaseModel
from mmengine.runner import Runner
from torch.utils.data import DataLoader


class Wines(BaseModel):
    def __init__(self):
        super().__init__()
        self.net = Net()

    def forward(self, x, y, mode='tensor'):
        logits = self.net(x)
        return {'loss': F.cross_entropy(logits, y)} if mode == 'loss' else (logits.argmax(1), y)


class Accuracy(BaseMetric):
    def process(self, data_batch, data_samples):
        labels, y = data_samples
        self.results.append(((labels == y).sum().item(), len(y)))

    def compute_metrics(self, results):
        right, number = map(sum, zip(*results, strict=True))
        return {'accuracy': right / number}


train = DataLoader(wines('train'), batch_size=BATCH_SIZE, shuffle=True)
val = DataLoader(wines('val'), batch_size=BATCH_SIZE)
torch.manual_seed(0)
model = Wines()
runner = Runner(
    model,
    work_dir=sys.argv[1],
    train_dataloader=train,
    train_cfg={'by_epoch': False, 'max_iters': EPOCHS * len(train), 'val_interval': len(train)},
    val_dataloader=val,
    val_cfg={},
    val_evaluator=[Accuracy()],
    optim_wrapper={'optimizer': {'type': 'AdamW', 'lr': LR}},
    default_hooks={
        'checkpoint': {'type': 'CheckpointHook', 'interval': 2, 'by_epoch': False},
        'logger': {'type': 'LoggerHook', 'interval': 1},
    },
    log_processor={'by_epoch': False},
    default_scope='mmengine',
    randomness={'seed': 0},
    resume=True,
)
runner.train()
torch.save(model.net.state_dict(), f'{sys.argv[1]}/weights.pt')
