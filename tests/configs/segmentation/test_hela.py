from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import runnerkit
from runnerkit.checkpoint import save_checkpoint
from runnerkit.config import Config
from runnerkit.data import build_dataloader, build_dataset
from runnerkit.flow.use.predict import loader_of
from runnerkit.nn import build_model
from runnerkit.optim import build_optimizer

FILE = Path(__file__).parents[3] / 'configs/segmentation/hela.py'


def test_the_parts_fit_together():
    cfg = Config.fromfile(str(FILE))
    torch.manual_seed(0)
    model = build_model(cfg.model)
    optimizer = build_optimizer(model, cfg.optimizer)
    train = build_dataset(cfg.data.train)
    assert len(train) == cfg.data.batch_size * cfg.runner.max_iters
    loader = build_dataloader(train, cfg.data.batch_size, cfg.data.workers, seed=cfg.seed)
    batch = next(iter(loader))
    first = model.train_step(batch, optimizer)
    assert set(first['log_vars']) == {'loss', 'loss_bce', 'loss_dice'}
    assert first['num_samples'] == 4
    first['loss'].backward()
    optimizer.step()
    assert model.train_step(batch, optimizer)['loss'] < first['loss']
    step = model.eval().val_step(batch)
    model.metrics['iou'].update(step['preds'], step['target'])
    assert 0 <= model.metrics['iou'].compute() <= 1
    assert cfg.evaluation.save_best in model.metrics


def test_predictions_for_frames_in_files(tmp_path):
    cfg = Config.fromfile(str(FILE))
    torch.manual_seed(0)
    model = build_model(cfg.model).eval()
    save_checkpoint(model, tmp_path / 'epoch_1.pth')
    pixels = np.random.default_rng(0).integers(0, 60000, (2, 32, 48)).astype(np.uint16)
    files = [tmp_path / 'a.png', tmp_path / 'b.png']
    for file, frame in zip(files, pixels):
        Image.fromarray(frame).save(file)
    found = runnerkit.predict(cfg, files, checkpoint=tmp_path / 'epoch_1.pth', device='cpu')
    frames = torch.from_numpy(np.stack([(each - each.mean()) / each.std() for each in pixels])[:, None]).float()
    assert torch.allclose(torch.stack(found), model(frames), atol=1e-3)


@pytest.mark.thorough  # tests/configs/mnist/test_lenet.py
def test_exported_files_give_the_predictions(tmp_path):
    import onnxruntime

    cfg = Config.fromfile(str(FILE))
    cfg.model.model.width = 2
    cfg.data.test = dict(type=cfg.dataset, part='test', crop=32, length=3)
    torch.manual_seed(0)
    save_checkpoint(build_model(cfg.model), tmp_path / 'epoch_1.pth')
    found = torch.stack(runnerkit.predict(cfg, 'test', checkpoint=tmp_path / 'epoch_1.pth', device='cpu'))
    frames = torch.stack([sample['image'][0] for sample in loader_of(cfg, 'test')])
    for name in ('x.onnx', 'x.pt2'):
        told = runnerkit.export(cfg, tmp_path / name, checkpoint=tmp_path / 'epoch_1.pth')
        assert told.inputs == {'image': 'float32 [batch, 1, 32, 32]'}
        assert told.outputs == {'output': 'float32 [batch, 32, 32]'}
    (computed,) = onnxruntime.InferenceSession(tmp_path / 'x.onnx').run(None, {'image': frames.numpy()})
    assert np.allclose(computed, found, atol=1e-4)
    assert torch.allclose(torch.export.load(tmp_path / 'x.pt2').module()(frames), found, atol=1e-4)
