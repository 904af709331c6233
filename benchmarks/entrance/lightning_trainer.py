"""Lightning's Trainer, with torchdata's StatefulDataLoader, which its documentation names for a place in an epoch."""

import sys

import torch
import torch.nn.functional as F
from job import BATCH_SIZE, EPOCHS, LR, Net, wines
from lightning import LightningModule, Trainer, seed_everything
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from torchdata.stateful_dataloader import StatefulDataLoader
from torchmetrics.classification import MulticlassAccuracy


class Wines(LightningModule):
    def __init__(self):
        super().__init__()
        self.net = Net()
        self.accuracy = MulticlassAccuracy(num_classes=3, average='micro')

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = F.cross_entropy(self.net(x), y)
        self.log('loss', loss)
        return loss

    def validation_step(self, batch, batch_idx):
        x, y = batch
        self.accuracy(self.net(x), y)
        self.log('accuracy', self.accuracy)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=LR)


folder = sys.argv[1]
seed_everything(0)
train = StatefulDataLoader(wines('train'), batch_size=BATCH_SIZE, shuffle=True)
val = StatefulDataLoader(wines('val'), batch_size=BATCH_SIZE)
module = Wines()
saves = ModelCheckpoint(folder, every_n_train_steps=2, save_last=True)
trainer = Trainer(
    accelerator='cpu', max_epochs=EPOCHS, default_root_dir=folder, callbacks=[saves], logger=CSVLogger(folder)
)
trainer.fit(module, train, val, ckpt_path='last')
torch.save(module.net.state_dict(), f'{folder}/weights.pt')
