"""An experiment that recognises speakers by two vowels. It runs from a config (``speakers.py``), or alone:

python configs/speech/experiment.py --config configs/speech/speakers.py --output work_dirs/speakers
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from runnerkit.data import build_dataloader
from runnerkit.flow import Experiment
from runnerkit.utils.imports import import_object

FILE = __file__.rpartition('/')[0] + '/utterances.py'
Utterances, together, SPEAKERS = (import_object(f'{FILE}:{name}') for name in ('Utterances', 'together', 'SPEAKERS'))


class SpeakerNet(nn.Module):
    """A GRU in both directions, whose states are averaged over the frames. Utterances to logits `[n, 9]`."""

    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.frames = nn.GRU(12, width, batch_first=True, bidirectional=True)
        self.dropout = nn.Dropout(dropout)
        self.speakers = nn.Linear(2 * width, SPEAKERS)

    def forward(self, utterances: Tensor, lengths: Tensor) -> Tensor:
        packed = pack_padded_sequence(utterances, lengths.cpu(), batch_first=True, enforce_sorted=False)
        states, _ = pad_packed_sequence(self.frames(packed)[0], batch_first=True)
        return self.speakers(self.dropout(states.sum(1) / lengths[:, None]))


class Speakers(Experiment):
    """Nine men, two vowels."""

    def setup_dataloader(self) -> None:
        fold, batch_size = self.config.utterances.fold, self.config.utterances.batch_size
        train = Utterances('train', fold)
        valid = Utterances('test') if fold is None else Utterances('train', f'only {fold}')
        self.train_loader = build_dataloader(train, batch_size, 0, seed=self.seed, collate_fn=together)
        self.valid_loader = build_dataloader(valid, 100, 0, shuffle=False, round_up=False, collate_fn=together)

    def setup_model(self) -> None:
        settings = self.config.speaker_net
        self.model = SpeakerNet(settings.width, settings.dropout)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=settings.lr, weight_decay=settings.weight_decay)

    def train_batch(self) -> dict[str, Tensor | int]:
        utterances, lengths, speakers = self.read_batch()
        utterances = utterances + self.config.utterances.noise * torch.randn_like(utterances)
        logits = self.model(utterances, lengths)
        loss = F.cross_entropy(logits, speakers)
        self.update(loss)
        accuracy = (logits.argmax(1) == speakers).float().mean()
        return dict(loss=loss, train_accuracy=accuracy, num_samples=len(speakers))

    def valid(self) -> dict[str, Tensor]:
        losses, right = [], []
        for utterances, lengths, speakers in self.valid_loader:
            logits = self.model(utterances.to(self.device), lengths.to(self.device)).cpu()
            losses.append(F.cross_entropy(logits, speakers, reduction='none'))
            right.append((logits.argmax(1) == speakers).float())
        return dict(loss=torch.cat(losses).mean(), accuracy=torch.cat(right).mean())


if __name__ == '__main__':
    from runnerkit.flow.experiment.main import main

    raise SystemExit(main(Speakers))
