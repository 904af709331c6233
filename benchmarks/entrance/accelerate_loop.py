"""The plain loop with Accelerate of Hugging Face, resumed as in its examples: a folder for a step, skipped batches."""

import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from accelerate import Accelerator, DataLoaderConfiguration
from accelerate.utils import set_seed
from job import BATCH_SIZE, EPOCHS, LR, Net, wines
from torch.utils.data import DataLoader

folder = Path(sys.argv[1])
folder.mkdir(parents=True, exist_ok=True)
accelerator = Accelerator(cpu=True, dataloader_config=DataLoaderConfiguration(use_seedable_sampler=True))
set_seed(0)
train = DataLoader(wines('train'), batch_size=BATCH_SIZE, shuffle=True)
val = DataLoader(wines('val'), batch_size=BATCH_SIZE)
net = Net()
optimizer = torch.optim.AdamW(net.parameters(), lr=LR)
net, optimizer, train, val = accelerator.prepare(net, optimizer, train, val)
step = max((int(path.name.removeprefix('step_')) for path in folder.glob('step_*')), default=0)
if step:
    accelerator.load_state(folder / f'step_{step}')
begin, skipped = divmod(step, len(train))
for epoch in range(begin, EPOCHS):
    net.train()
    train.set_epoch(epoch)
    batches = accelerator.skip_first_batches(train, skipped) if epoch == begin and skipped else train
    for x, y in batches:
        loss = F.cross_entropy(net(x), y)
        optimizer.zero_grad()
        accelerator.backward(loss)
        optimizer.step()
        step += 1
        if step % 2 == 0:
            accelerator.save_state(folder / f'step_{step}')
    net.eval()
    with torch.no_grad():
        right = sum((net(x).argmax(1) == y).sum().item() for x, y in val)
    print(f'epoch {epoch}: loss {loss:.4f}, accuracy {right / len(val.dataset):.4f}')
torch.save(net.state_dict(), folder / 'weights.pt')
