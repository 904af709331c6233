"""The plain loop with `runnerkit.loop`."""

import sys

import torch
import torch.nn.functional as F
from job import BATCH_SIZE, EPOCHS, LR, Net, wines
from torch.utils.data import DataLoader

import runnerkit

torch.manual_seed(0)
train = DataLoader(wines('train'), batch_size=BATCH_SIZE, shuffle=True)
val = DataLoader(wines('val'), batch_size=BATCH_SIZE)
net = Net()
optimizer = torch.optim.AdamW(net.parameters(), lr=LR)
saves = {'interval': 2, 'by_epoch': False}
run = runnerkit.loop(sys.argv[1], model=net, optimizer=optimizer, seed=0, checkpoint_config=saves)
for _ in run.epochs(EPOCHS):
    net.train()
    for x, y in run.batches(train):
        loss = F.cross_entropy(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        run.log(loss=loss)
    net.eval()
    with torch.no_grad():
        right = sum((net(x).argmax(1) == y).sum().item() for x, y in val)
    run.score(accuracy=right / len(val.dataset))
torch.save(net.state_dict(), f'{sys.argv[1]}/weights.pt')
