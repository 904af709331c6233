"""A plain loop, with the checkpoints of PyTorch's tutorial: network, optimizer and epoch, after each epoch."""

import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from job import BATCH_SIZE, EPOCHS, LR, Net, wines
from torch.utils.data import DataLoader

folder = Path(sys.argv[1])
folder.mkdir(parents=True, exist_ok=True)
torch.manual_seed(0)
train = DataLoader(wines('train'), batch_size=BATCH_SIZE, shuffle=True)
val = DataLoader(wines('val'), batch_size=BATCH_SIZE)
net = Net()
optimizer = torch.optim.AdamW(net.parameters(), lr=LR)
begin = 0
if (folder / 'last.pth').exists():
    checkpoint = torch.load(folder / 'last.pth')
    net.load_state_dict(checkpoint['net'])
    optimizer.load_state_dict(checkpoint['optimizer'])
    begin = checkpoint['epoch'] + 1
for epoch in range(begin, EPOCHS):
    net.train()
    for x, y in train:
        loss = F.cross_entropy(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    net.eval()
    with torch.no_grad():
        right = sum((net(x).argmax(1) == y).sum().item() for x, y in val)
    print(f'epoch {epoch}: loss {loss:.4f}, accuracy {right / len(val.dataset):.4f}')
    state = {'net': net.state_dict(), 'optimizer': optimizer.state_dict(), 'epoch': epoch}
    torch.save(state, folder / 'last.pth')
torch.save(net.state_dict(), folder / 'weights.pt')
