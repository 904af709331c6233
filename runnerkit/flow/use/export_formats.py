"""A network as a program of `torch.export`, and as ONNX; each comes with what runs it again."""

from __future__ import annotations

import io
import json
import logging
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from inspect import BoundArguments
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from runnerkit.utils.suggest import suggestion

#: The packages that ONNX needs.
_ONNX_PACKAGES = ('onnx', 'onnxscript', 'onnxruntime')

#: The largest ONNX file, in bytes.
_MOST_ONNX = (1 << 31) - 1

#: What an error of `torch.export` says about its own switches and debugging, up to the end of the line.
_OWN_ADVICE = re.compile(r"(?:For (?:more|extended|C\+\+)|If you(?: suspect|'re using)|The error above).*")

Run = Callable[[BoundArguments], list[Tensor]]


@dataclass
class Exportable:
    """What is exported.

    Attributes:
        name: what it is, for messages: ``'the network of Supervised (LeNet)'``.
        module: its ``forward`` is exported.
        example: arguments of ``forward``: two samples, on the CPU.
        metadata: what is written into the file about its origin.
        dynamic: names of the sizes that may be any, by ``input.dimension``; those of one name are equal. The batch's is
            not among them.
    """

    name: str
    module: nn.Module
    example: BoundArguments
    metadata: dict[str, str]
    dynamic: Mapping[str, str] = field(default_factory=dict)


def check_export_format(path: str) -> str:
    """The extension of ``path``, which says what is written.

    Raises:
        ImportError: it needs a package that is not installed.
        ValueError: it is not one of `FORMATS`.
    """
    extension = Path(path).suffix.lower()
    if extension not in FORMATS:
        raise ValueError(
            f'a model is exported as {", ".join(FORMATS)}, but not as {path}{suggestion(extension, FORMATS)}'
        )
    missing = [name for name in _ONNX_PACKAGES if find_spec(name) is None] if extension == '.onnx' else []
    if missing:
        raise ImportError(
            f'{path} needs {" and ".join(missing)}, which cannot be imported: pip install {" ".join(_ONNX_PACKAGES)}'
        )
    return extension


def tensors_in(value: Any, name: str) -> dict[str, Tensor]:
    """The tensors in ``value`` by name: ``name`` itself, ``name_0``, ``name_boxes`` …; None is left out.

    Raises:
        TypeError: there is something else in it.
    """
    if isinstance(value, Tensor):
        return {name: value}
    if value is None:
        return {}
    if isinstance(value, Mapping):
        items = [(str(key), item) for key, item in value.items()]
    elif isinstance(value, list | tuple):
        items = [(str(index), item) for index, item in enumerate(value)]
    else:
        raise TypeError(f'{name} is a {type(value).__name__}, but only tensors can be exported')
    return {full: each for key, item in items for full, each in tensors_in(item, f'{name}_{key}').items()}


def outputs_of(value: Any) -> dict[str, Tensor]:
    """The tensors that a network has returned, by name; those of a dict have its keys."""
    if isinstance(value, Mapping):
        return {name: each for key, item in value.items() for name, each in tensors_in(item, str(key)).items()}
    return tensors_in(value, 'output')


def batch_size_of(arguments: BoundArguments) -> int:
    """The number of samples in ``arguments``: the first dimension of the first tensor that has one."""
    return next((len(each) for each in inputs_of(arguments).values() if each.dim()), 0)


def inputs_of(arguments: BoundArguments) -> dict[str, Tensor]:
    """The tensors in ``arguments`` by name."""
    return {key: each for name, value in arguments.arguments.items() for key, each in tensors_in(value, name).items()}


# --- formats ---------------------------------------------------------------------------------------------------------


def _torch_program(network: Exportable) -> tuple[bytes, Run]:
    """A program of `torch.export`, which runs without the model's code."""
    buffer = io.BytesIO()
    with _quiet():
        try:
            torch.export.save(_traced(network), buffer, extra_files={'metadata.json': json.dumps(network.metadata)})
        except NotImplementedError as error:  # of torch.return_types.topk, for one
            way_out = 'write tuple(x.topk(5)) in place of x.topk(5), or write .onnx'
            raise ValueError(f'.pt2 cannot express what {network.name} returns: {_told(error)}; {way_out}') from None
        content = buffer.getvalue()
        module = torch.export.load(io.BytesIO(content)).module()
    return content, lambda inputs: list(outputs_of(module(*inputs.args, **inputs.kwargs)).values())


def _onnx(network: Exportable) -> tuple[bytes, Run]:
    """An ONNX model, whose inputs are the arguments of ``forward`` and whose first dimension is ``batch``."""
    from onnxruntime import InferenceSession

    names = list(inputs_of(network.example))
    answers = _names_of_outputs(network, names)
    size = sum(each.numel() * each.element_size() for each in network.module.state_dict().values())
    if size > _MOST_ONNX:
        raise ValueError(f'its weights have {size / 2**30:.1f} GiB, but an ONNX file holds at most 2: write .pt2')
    with _quiet():
        program = _traced(network)
        try:
            made = torch.onnx.export(
                program,
                dynamo=True,
                verbose=False,
                input_names=names,
                output_names=answers,
                dynamic_shapes=_dynamic(network, str),
            )
        except Exception as error:
            while error.__cause__ is not None:  # the first one names the operation
                error = error.__cause__  # type: ignore[assignment]
            raise ValueError(
                f'ONNX cannot express {network.name}: {_told(error)}. Replace that operation in the model; or write '
                '.pt2, which has all operations of torch'
            ) from None
    proto = made.model_proto  # type: ignore[union-attr]
    for key, value in network.metadata.items():
        proto.metadata_props.add(key=key, value=value)
    content = proto.SerializeToString()
    try:
        session = InferenceSession(content, providers=['CPUExecutionProvider'])
    except Exception as error:
        raise ValueError(
            f'ONNX Runtime cannot run {network.name}: {_told(error)}. Convert the model to float32 if it has another '
            'type of numbers; or write .pt2, which has all types and operations of torch'
        ) from None

    def run(inputs: BoundArguments) -> list[Tensor]:
        given = {name: value.numpy() for name, value in inputs_of(inputs).items()}
        return [torch.from_numpy(each) for each in session.run(None, given)]

    return content, run


def _names_of_outputs(network: Exportable, inputs: Sequence[str]) -> list[str]:
    """Names for the outputs; one that an input has, too, ends in ``_out``, because names in an ONNX file are unique."""
    names: list[str] = []
    for name in outputs_of(network.module(*network.example.args, **network.example.kwargs)):
        while name in inputs or name in names:
            name += '_out'
        names.append(name)
    return names


def _traced(network: Exportable) -> Any:
    """The network as a program whose batch, and whose dynamic sizes, may be any."""
    example = network.example
    try:
        return torch.export.export(
            network.module,
            example.args,
            example.kwargs,
            dynamic_shapes=_dynamic(network, torch.export.Dim),
            strict=False,
        )
    except Exception as error:
        raise ValueError(
            f'torch.export cannot take {network.name}: {_told(error)}. Write that line with operations of torch alone '
            '(torch.where in place of if, x.shape[0] in place of a fixed batch size); or write a method forward_dummy '
            'of the model without it, which is then exported'
        ) from None


def _dynamic(network: Exportable, size: Callable[[str], Any]) -> dict[str, Any]:
    """What `torch.export` wants to know about the sizes of the arguments: which may be any, and which are equal.

    Args:
        network: its example and its dynamic sizes.
        size: makes the size that has this name.
    """
    count = batch_size_of(network.example)
    sizes = {name: size(name) for name in ('batch', *network.dynamic.values())}

    def of(value: Any, name: str) -> Any:
        if isinstance(value, Tensor):
            free = {0: sizes['batch']} if value.dim() and len(value) == count else {}
            for key, called in network.dynamic.items():
                if key.rpartition('.')[0] == name:
                    free[int(key.rpartition('.')[2])] = sizes[called]
            return free or None
        if isinstance(value, Mapping):
            return {key: of(item, f'{name}_{key}') for key, item in value.items()}
        if type(value) in (list, tuple):
            return type(value)(of(item, f'{name}_{index}') for index, item in enumerate(value))
        return None

    return {name: of(value, name) for name, value in network.example.arguments.items()}


def _told(error: Exception) -> str:
    """What torch says about a network that it cannot take, and about which line, without its advice on debugging."""
    lines = dict.fromkeys(_OWN_ADVICE.sub('', line).strip(' -') for line in str(error).splitlines())
    said = [line for line in lines if line]
    place = next((index for index, line in enumerate(said) if line.startswith('File "')), 0)
    return ' '.join(said[:2] + (said[place : place + 2] if place > 1 else []))[:600].rstrip('. ')


@contextmanager
def _quiet() -> Iterator[None]:
    """Without torch's warnings about itself; its errors become one message."""
    logger = logging.getLogger('torch')
    level = logger.level
    try:
        logger.setLevel(logging.CRITICAL)
        with warnings.catch_warnings():
            warnings.simplefilter('ignore')
            yield
    finally:
        logger.setLevel(level)


def mapped(arguments: BoundArguments, change: Callable[[Tensor], Tensor]) -> BoundArguments:
    """``arguments`` with ``change`` applied to each tensor."""

    def of(value: Any) -> Any:
        if isinstance(value, Tensor):
            return change(value)
        if isinstance(value, Mapping):
            return {key: of(item) for key, item in value.items()}
        return type(value)(map(of, value)) if type(value) in (list, tuple) else value

    new = BoundArguments(arguments.signature, type(arguments.arguments)())
    new.arguments.update({name: of(value) for name, value in arguments.arguments.items()})
    return new


#: What a model is exported to, by the extension of the file.
FORMATS: dict[str, Callable[[Exportable], tuple[bytes, Run]]] = {
    '.pt2': _torch_program,
    '.onnx': _onnx,
}
