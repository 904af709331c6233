"""The plain loop with Lightning's Fabric and torchdata's StatefulDataLoader."""

import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from job import BATCH_SIZE, EPOCHS, LR, Net, wines
from lightning.fabric import Fabric
from torchdata.stateful_dataloader import StatefulDataLoader

folder = Path(sys.argv[1])
fabric = Fabric(accelerator='cpu')
fabric.seed_everything(0)
train = StatefulDataLoader(wines('train'), batch_size=BATCH_SIZE, shuffle=True)
val = StatefulDataLoader(wines('val'), batch_size=BATCH_SIZE)
net = Net()
net, optimizer = fabric.setup(net, torch.optim.AdamW(net.parameters(), lr=LR))
state = {'net': net, 'optimizer': optimizer, 'train': train, 'epoch': 0, 'step': 0}
if (folder / 'last.ckpt').exists():
    fabric.load(folder / 'last.ckpt', state)
for epoch in range(state['epoch'], EPOCHS):
    state['epoch'] = epoch
    net.train()
    for x, y in train:
        loss = F.cross_entropy(net(x), y)
        optimizer.zero_grad()
        fabric.backward(loss)
        optimizer.step()
        state['step'] += 1
        if state['step'] % 2 == 0:
            fabric.save(folder / 'last.ckpt', state)
    net.eval()
    with torch.no_grad():
        right = sum((net(x).argmax(1) == y).sum().item() for x, y in val)
    print(f'epoch {epoch}: loss {loss:.4f}, accuracy {right / len(val.dataset):.4f}')
torch.save(net.state_dict(), folder / 'weights.pt')
