"""The same as configs/mnist/onecycle.py, in Lightning; PYTHONPATH=configs/mnist has the data set and the network."""

import csv

import torch
from digits import Digits
from lightning import LightningModule, Trainer, seed_everything
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
from networks import LeNet
from torch import nn
from torch.utils.data import DataLoader
from torchmetrics.classification import MulticlassAccuracy


class Classifier(LightningModule):
    def __init__(self):
        super().__init__()
        self.model = LeNet(channels=(16, 32), hidden=128, dropout=0.25)
        self.loss = nn.CrossEntropyLoss(label_smoothing=0.1)
        self.accuracy = MulticlassAccuracy(num_classes=10, average='micro')

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = self.loss(self.model(x), y)
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
        self.log(f'{stage}_loss', self.loss(logits, y), prog_bar=True)
        self.log(f'{stage}_accuracy', self.accuracy, prog_bar=True)

    def predict_step(self, batch, batch_idx):
        return self.model(batch[0]).argmax(1)

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=0.01, weight_decay=0.01)
        steps = self.trainer.estimated_stepping_batches
        scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.01, total_steps=steps)
        return {'optimizer': optimizer, 'lr_scheduler': {'scheduler': scheduler, 'interval': 'step'}}


seed_everything(0, workers=True)
torch.set_num_threads(1)
train = DataLoader(Digits('train', augment=True), batch_size=64, shuffle=True)
val = DataLoader(Digits('val'), batch_size=64)
test = DataLoader(Digits('test'), batch_size=64)
folder = 'work_dirs/onecycle'
checkpoint = ModelCheckpoint(folder, monitor='val_accuracy', mode='max', save_last=True)
stopping = EarlyStopping('val_accuracy', mode='max', patience=3)
trainer = Trainer(max_epochs=12, gradient_clip_val=1.0, default_root_dir=folder, callbacks=[checkpoint, stopping])
trainer.fit(Classifier(), train, val, ckpt_path='last')
trainer.test(dataloaders=test, ckpt_path='best')
predictions = torch.cat(trainer.predict(dataloaders=test, ckpt_path='best')).tolist()
with open(f'{folder}/predictions.csv', 'w', newline='') as file:
    csv.writer(file).writerows([('input', 'prediction'), *enumerate(predictions)])
