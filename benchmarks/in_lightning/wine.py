"""The same as configs/tabular/wine.py, in Lightning."""

import csv
from importlib import metadata

import numpy as np
import torch
import torch.nn.functional as F
from lightning import LightningModule, Trainer, seed_everything
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics.classification import MulticlassAccuracy

FILE = metadata.distribution('mlxtend').locate_file('mlxtend/data/data/wine.csv')
PARTS = {'train': slice(0, 100), 'val': slice(100, 130), 'test': slice(130, None)}


def wines(part):
    table = np.random.default_rng(0).permutation(np.loadtxt(FILE, np.float32, delimiter=','))
    values, classes = torch.from_numpy(table[:, :-1]), torch.from_numpy(table[:, -1]).long()
    train = values[PARTS['train']]
    values = (values - train.mean(0)) / train.std(0)
    return TensorDataset(values[PARTS[part]], classes[PARTS[part]])


class Wines(LightningModule):
    def __init__(self):
        super().__init__()
        self.model = nn.Sequential(nn.Linear(13, 32), nn.ReLU(), nn.Linear(32, 3))
        self.accuracy = MulticlassAccuracy(num_classes=3, average='micro')

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = F.cross_entropy(self.model(x), y)
        self.log('train_loss', loss)
        return loss

    def validation_step(self, batch, batch_idx):
        self.evaluate(batch, 'val')

    def test_step(self, batch, batch_idx):
        self.evaluate(batch, 'test')

    def evaluate(self, batch, stage):
        x, y = batch
        logits = self.model(x)
        self.accuracy(logits, y)
        self.log(f'{stage}_loss', F.cross_entropy(logits, y), prog_bar=True)
        self.log(f'{stage}_accuracy', self.accuracy, prog_bar=True)

    def predict_step(self, batch, batch_idx):
        return self.model(batch[0]).argmax(1)

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=0.01)
        scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, self.trainer.max_epochs)
        return {'optimizer': optimizer, 'lr_scheduler': scheduler}


seed_everything(0, workers=True)
train = DataLoader(wines('train'), batch_size=16, shuffle=True)
val = DataLoader(wines('val'), batch_size=16)
test = DataLoader(wines('test'), batch_size=16)
folder = 'work_dirs/wine'
checkpoint = ModelCheckpoint(folder, monitor='val_loss', save_last=True)
stopping = EarlyStopping('val_loss', patience=3)
trainer = Trainer(max_epochs=30, default_root_dir=folder, callbacks=[checkpoint, stopping])
trainer.fit(Wines(), train, val, ckpt_path='last')
trainer.test(dataloaders=test, ckpt_path='best')
predictions = torch.cat(trainer.predict(dataloaders=test, ckpt_path='best')).tolist()
with open(f'{folder}/predictions.csv', 'w', newline='') as file:
    csv.writer(file).writerows([('input', 'prediction'), *enumerate(predictions)])
