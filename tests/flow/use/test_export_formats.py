"""Networks in the formats of other programs."""

import inspect

import pytest
import torch
from torch import nn

from runnerkit.flow.use import export_formats
from runnerkit.flow.use.export_formats import (
    FORMATS,
    Exportable,
    batch_size_of,
    inputs_of,
    mapped,
    outputs_of,
    tensors_in,
)

X, Y = torch.zeros(2, 3), torch.ones(2)


class Nested(nn.Module):
    """Tensors in containers of each kind."""

    def forward(self, x, *more, scale, data):
        return data['a'] + x * scale + more[0][1] + data['table'].sum()


class Extra(nn.Linear):
    def get_extra_state(self):
        return {'a': 3}


class NotInOnnx(nn.Module):
    def forward(self, x):
        return torch.linalg.matrix_exp(x[:, None] * x[:, :, None])


def network(module, *args, **kwargs):
    bound = inspect.signature(module.forward).bind(*args, **kwargs)
    return Exportable('the net', module.eval(), bound, {'epoch': '3'})


def test_tensors_by_name():
    assert list(tensors_in({'a': X, 'b': [Y, (X, None)]}, 'x')) == ['x_a', 'x_b_0', 'x_b_1_0']
    assert tensors_in(Y, 'x') == {'x': Y}
    assert list(outputs_of(X)) == ['output']
    assert list(outputs_of((X, Y))) == ['output_0', 'output_1']
    assert list(outputs_of({'logits': X, 'boxes': [Y]})) == ['logits', 'boxes_0']
    with pytest.raises(TypeError, match='x_1 is a float, but only tensors can be exported'):
        tensors_in([X, 0.5], 'x')


@pytest.mark.parametrize('extension', ['.pt2', '.onnx'])
def test_arguments_of_each_kind(extension):
    whole = network(Nested(), X, [Y, X.clone()], scale=torch.tensor(2.0), data={'a': X.clone(), 'table': torch.ones(7)})
    assert list(inputs_of(whole.example)) == ['x', 'more_0_0', 'more_0_1', 'scale', 'data_a', 'data_table']
    assert batch_size_of(whole.example) == 2
    content, run = FORMATS[extension](whole)
    assert content
    larger = mapped(
        whole.example, lambda each: torch.rand(5, *each.shape[1:]) if each.dim() and len(each) == 2 else each * 3
    )
    (found,) = run(larger)
    assert torch.allclose(found, whole.module(*larger.args, **larger.kwargs))
    assert found.shape == (5, 3)


def test_what_a_format_cannot_hold_is_told(monkeypatch):
    with pytest.raises(
        ValueError, match='ONNX cannot express the net: No ONNX function found for .*matrix_exp.*write .pt2'
    ):
        FORMATS['.onnx'](network(NotInOnnx(), X))
    monkeypatch.setattr(export_formats, '_MOST_ONNX', 47)  # 12 numbers of 4 bytes
    with pytest.raises(ValueError, match='an ONNX file holds at most 2: write .pt2'):
        FORMATS['.onnx'](network(nn.Linear(3, 3), X))
