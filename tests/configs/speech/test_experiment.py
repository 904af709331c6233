import subprocess
import sys
from pathlib import Path

import pytest
import torch

from runnerkit.utils.imports import import_object

ROOT = Path(__file__).parents[3]
FILE = ROOT / 'configs/speech/experiment.py'
SpeakerNet = import_object(f'{FILE}:SpeakerNet')


def test_what_lies_behind_an_utterance_does_not_matter():
    torch.manual_seed(0)
    net = SpeakerNet(4, 0.0)
    utterances, lengths = torch.randn(2, 9, 12), torch.tensor([5, 9])
    logits = net(utterances, lengths)
    assert logits.shape == (2, 9)
    other = utterances.clone()
    other[0, 5:] = 7.0
    assert torch.equal(net(other, lengths), logits)
    assert torch.allclose(net(utterances[:1, :5], lengths[:1]), logits[:1], atol=1e-6)
    logits.sum().backward()
    assert all(parameter.grad.abs().sum() > 0 for parameter in net.parameters())


@pytest.mark.thorough  # tests/flow/test_experiment.py
def test_it_runs_by_itself(tmp_path):
    flags = ['--config', 'configs/speech/speakers.py', '--output', str(tmp_path), '--device', 'cpu']
    flags += ['--opts', 'training.max_iteration', '2', 'training.valid_interval', '2', 'speaker_net.width', '4']
    done = subprocess.run([sys.executable, str(FILE), *flags], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / 'iter_2.pth').exists()
