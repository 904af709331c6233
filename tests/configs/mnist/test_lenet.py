from pathlib import Path

import numpy as np
import pytest
import torch

import runnerkit
from runnerkit.checkpoint import save_checkpoint
from runnerkit.config import Config
from runnerkit.data import build_dataloader, build_dataset
from runnerkit.nn import build_model
from runnerkit.optim import build_optimizer

FILE = Path(__file__).parents[3] / 'configs/mnist/lenet.py'


def test_the_parts_fit_together():
    cfg = Config.fromfile(str(FILE))
    torch.manual_seed(0)
    model = build_model(cfg.model)
    optimizer = build_optimizer(model, cfg.optimizer)
    datasets = {part: build_dataset(cfg.data[part]) for part in ('train', 'val', 'test')}
    assert [len(dataset) for dataset in datasets.values()] == [3500, 500, 1000]
    assert [dataset.augment for dataset in datasets.values()] == [True, False, False]
    loader = build_dataloader(datasets['train'], cfg.data.batch_size, cfg.data.workers, seed=cfg.seed)
    batch = next(iter(loader))
    first = model.train_step(batch, optimizer)
    assert first['num_samples'] == cfg.data.batch_size
    first['loss'].backward()
    optimizer.step()
    assert model.train_step(batch, optimizer)['loss'] < first['loss']


@pytest.mark.thorough  # tests/cli/test_export.py
def test_exported_files_give_the_predictions(tmp_path):
    import onnxruntime

    cfg = Config.fromfile(str(FILE))
    torch.manual_seed(0)
    model = build_model(cfg.model).eval()
    save_checkpoint(model, tmp_path / 'epoch_1.pth')
    found = torch.stack(runnerkit.predict(cfg, 'val', checkpoint=tmp_path / 'epoch_1.pth', device='cpu'))
    dataset = build_dataset(cfg.data.val)
    images = torch.stack([dataset[index][0] for index in range(len(dataset))])
    for name in ('x.onnx', 'x.pt2'):
        told = runnerkit.export(cfg, tmp_path / name, checkpoint=tmp_path / 'epoch_1.pth')
        assert told.inputs == {'image': 'float32 [batch, 1, 28, 28]'}
    (computed,) = onnxruntime.InferenceSession(tmp_path / 'x.onnx').run(None, {'image': images.numpy()})
    assert np.allclose(computed, found, atol=1e-4)
    assert torch.allclose(torch.export.load(tmp_path / 'x.pt2').module()(images), found, atol=1e-4)


def test_the_best_score_is_one_of_the_metrics():
    cfg = Config.fromfile(str(FILE))
    metrics = build_model(cfg.model).metrics
    assert cfg.evaluation.save_best in metrics
    assert metrics[cfg.evaluation.save_best].higher_is_better
