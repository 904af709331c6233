"""A trained model as a file that other programs run: a program of `torch.export`, or ONNX."""

from __future__ import annotations

import copy
import io
import json
import logging
import os
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from inspect import Parameter, signature
from pathlib import Path
from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn

from runnerkit.checkpoint.atomic import write_atomically
from runnerkit.config import Config
from runnerkit.fileio.paths import local_target
from runnerkit.flow.stages.process_state import preserved_process_state
from runnerkit.flow.use.load import Trained, build_trained, without_places
from runnerkit.flow.use.predict import READERS, Inputs, find_to_predict, loader_of, on_device, splits, words_of
from runnerkit.nn import Supervised
from runnerkit.utils.exceptions import raise_with_context
from runnerkit.utils.suggest import suggestion
from runnerkit.version import __version__

#: The network is traced with two samples and compared with three: a fixed batch size would show.
_TRACED, _COMPARED = 2, 3

_ONNX_PACKAGES = ('onnx', 'onnxscript', 'onnxruntime')

#: What an error of `torch.export` says about its own switches and debugging, up to the end of the line.
_OWN_ADVICE = re.compile(r"(?:For (?:more|extended|C\+\+)|If you(?: suspect|'re using)|The error above).*")

Shapes = Sequence[int] | Sequence[Sequence[int]]

#: The arguments of a network by name.
Tensors = dict[str, Tensor]

#: Computes the outputs of an exported file.
Run = Callable[[Tensors], list[Tensor]]


@dataclass
class Exported:
    """A file that a model was exported to.

    Attributes:
        path: the file.
        checkpoint: where the weights are from.
        network: what it is: the network of a `Supervised`, a model, or its ``forward_dummy``.
        inputs: the shape of each input by name, with the names of its dynamic sizes.
        outputs: the shape of each output by name.
        difference: the largest difference between the file's outputs and the model's, relative to the largest output.
        tolerance: the largest difference that is allowed.
    """

    path: Path
    checkpoint: str
    network: str
    inputs: dict[str, str]
    outputs: dict[str, str]
    difference: float
    tolerance: float

    def __str__(self) -> str:
        shapes = [', '.join(f'{name} {shape}' for name, shape in each.items()) for each in (self.inputs, self.outputs)]
        return (
            f'{self.path}: {self.network}, with the weights of {self.checkpoint}\n'
            f'inputs: {shapes[0]}; outputs: {shapes[1]}\n'
            f'largest difference from the model: {self.difference:.1e} (allowed: {self.tolerance:.0e})'
        )


@dataclass
class _Network:
    """What is exported: a module, an example of its arguments, and which of their sizes are dynamic."""

    name: str
    module: nn.Module
    example: Tensors
    sizes: dict[str, dict[int, str]]
    metadata: dict[str, str]

    def call(self, module: nn.Module, inputs: Tensors) -> Any:
        """What ``module``, this one or a copy, computes."""
        args, kwargs = _arguments(module, inputs)
        return module(*args, **kwargs)

    def shapes_by(self, size: Callable[[str], Any]) -> dict[str, Any]:
        """The dynamic sizes as torch's exporters take them; ``size`` makes the one of a name."""
        made = {name: size(name) for each in self.sizes.values() for name in each.values()}
        return {key: {dim: made[name] for dim, name in each.items()} or None for key, each in self.sizes.items()}


def export(
    source: Config | str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    checkpoint: str | os.PathLike[str] | None = None,
    config: Config | dict[str, Any] | str | os.PathLike[str] | None = None,
    which: str = 'best',
    inputs: Inputs | None = None,
    shape: Shapes | None = None,
    dynamic: Mapping[str, str] | None = None,
    tolerance: float = 1e-4,
    trust: bool = False,
    cfg_options: Mapping[str, Any] | None = None,
) -> Exported:
    """Write a trained model to a file, load that back, and compare its outputs with the model's on one batch.

    ::

        runnerkit.export('work_dirs/lenet', 'lenet.onnx')

    What is exported is the network of a `Supervised`; else the model's ``forward_dummy`` (MMCV), if it has one; else
    its ``forward``. It takes tensors and returns tensors, in lists, tuples or dicts. The number of samples in a batch
    is dynamic, other sizes are those of the example unless they are ``dynamic``.

    Args:
        source: a work dir; a config or its file, whose work dir has the model; or a checkpoint. See `load_model` about
            what is executed.
        out: the file: ``.pt2`` (`torch.export`) or ``.onnx``. It is replaced only by one that has been compared.
        checkpoint: the model's checkpoint or work dir, in place of the one of ``source``.
        config: the model's config, in place of the one of ``source``.
        which: of a work dir, the ``'best'`` or the ``'latest'`` checkpoint.
        inputs: the split or the files whose first batch is the example, as in `predict`; by default the first of the
            splits test, val and train that the config has.
        shape: of one sample, ``(1, 28, 28)``, or of each input, ``[(3, 224, 224), (10,)]``: random numbers are the
            example, and no data are read.
        dynamic: further dynamic sizes by input and dimension (0 is the batch), with a name; sizes of one name are
            equal: ``{'words.1': 'length', 'mask.1': 'length'}``.
        tolerance: how far outputs may differ, relative to the largest one; below 1, whole numbers must be equal.
        trust: see `load_model`.
        cfg_options: changes of the config as with ``--cfg-options``, by dotted key.

    Raises:
        FileNotFoundError: there is no such work dir, checkpoint, config or input.
        ImportError: the format needs a package that is not installed.
        TypeError: the network takes or returns something other than tensors.
        ValueError: the format is unknown; torch cannot export the network; the file computes something else; or see
            `load_model`.
    """
    write, path = _writer(os.fspath(out)), local_target(out)
    if not tolerance >= 0:
        raise ValueError(f'tolerance must be at least 0, but got {tolerance}')
    if inputs is not None and shape is not None:
        raise ValueError('the example is either inputs or of a shape: give one of the two')
    inputs = None if inputs is None else words_of(inputs)  # inputs may be a generator
    trained = find_to_predict(source, checkpoint, config, which, trust, inputs)
    if cfg_options:
        trained = trained._replace(cfg=copy.copy(trained.cfg))  # the caller's own is not changed
        trained.cfg.merge_from_dict(cfg_options)
    with preserved_process_state(), torch.no_grad():
        model = build_trained(trained)
        name, module = network_of(model)
        example = _first_batch(trained.cfg, model, module, inputs) if shape is None else _random(model, module, shape)
        sizes = _dynamic_sizes(example, dynamic or {})
        network = _Network(name, module, _resized(example, _TRACED, sizes), sizes, _metadata(trained))
        batch = _resized(example, _COMPARED, sizes, longer=1)
        expected = _computed(network, batch)
        content, run = write(network)
        difference = _difference(path, expected, run, batch, tolerance)
    write_atomically(path, content)
    outputs = {name: _described(each, {0: 'batch'}) for name, each in expected.items()}
    shapes = {name: _described(each, sizes[name]) for name, each in batch.items()}
    return Exported(path, trained.path, name, shapes, outputs, difference, tolerance)


def network_of(model: nn.Module) -> tuple[str, nn.Module]:
    """What is exported of ``model``: its description, and a module whose ``forward`` it is."""
    name, network = type(model).__name__, model
    if isinstance(model, Supervised) and type(model).forward is Supervised.forward:
        network = model.model
        name = f'the network of {name} ({type(network).__name__})'
    dummy = getattr(type(network), 'forward_dummy', None)
    if not callable(dummy):
        return name, network
    other = copy.copy(network)  # shares all weights
    other.forward = MethodType(dummy, other)
    return f'{name}, method forward_dummy', other


def _metadata(trained: Trained) -> dict[str, str]:
    """The origin of the weights, for the file."""
    meta = trained.content.get('meta', {})
    origin = {'runnerkit_version': __version__, 'checkpoint': os.path.basename(trained.path)}
    for key in ('epoch', 'iter', 'CLASSES', 'config'):
        if isinstance(meta.get(key), str | int | list | tuple):
            origin[key] = without_places(meta[key]) if isinstance(meta[key], str) else json.dumps(meta[key])
    return origin


# --- the example -----------------------------------------------------------------------------------------------------


def _example_split(cfg: Config) -> str:
    """The split whose first batch is the example."""
    names = splits(cfg)
    split = next((name for key in READERS for name in names if name.partition('/')[0] == key), None)
    if split is None:
        raise KeyError(
            f"the config's data has no {' and no '.join(READERS)}, whose first batch would be the example: give the "
            'shape of a sample instead, shape=(3, 224, 224) (--shape 3,224,224)'
        )
    return split


def _first_batch(cfg: Config, model: nn.Module, module: nn.Module, inputs: Inputs | None) -> Tensors:
    """The arguments that the first batch of ``inputs`` gives the network."""
    try:
        loader = loader_of(cfg, _example_split(cfg) if inputs is None else inputs)
        batch = on_device(next(iter(loader)), torch.device('cpu'))
    except Exception as error:
        way_out = 'name other inputs (--inputs), or the shape of a sample (--shape 3,224,224)'
        raise_with_context(error, '', f'. This was to be the example for the export: {way_out}')
    if isinstance(model, Supervised) and module is not model:
        return _bound(module, *model.arguments(batch))
    needed = [
        name
        for name, each in signature(module.forward).parameters.items()
        if each.default is Parameter.empty and each.kind not in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
    ]
    if isinstance(batch, Mapping):
        return _bound(module, (), {name: batch[name] for name in needed if name in batch})
    return _bound(module, batch[: max(1, len(needed))] if isinstance(batch, list | tuple) else [batch], {})


def _random(model: nn.Module, module: nn.Module, shape: Shapes) -> Tensors:
    """Random numbers of the given shapes, as the arguments of the network."""
    shapes: list[Any] = [shape] if all(isinstance(size, int) for size in shape) else list(shape)
    for each in shapes:
        if not isinstance(each, list | tuple) or not all(isinstance(size, int) and size > 0 for size in each):
            raise ValueError(f'a shape must be whole numbers above 0, such as (1, 28, 28), but got {each!r}')
    generator = torch.Generator().manual_seed(0)
    made = [torch.randn(_COMPARED, *each, generator=generator) for each in shapes]
    if isinstance(model, Supervised) and module is not model and isinstance(model.inputs, Mapping):
        return _bound(module, (), dict(zip(model.inputs, made, strict=False)))
    return _bound(module, made, {})


def _bound(module: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Tensors:
    """The arguments of ``forward`` by name; a TypeError if they do not fit, or are no tensors."""
    described = signature(module.forward)
    try:
        inputs = described.bind(*args, **kwargs).arguments
        other = next((key for key, each in inputs.items() if not isinstance(each, Tensor)), None)
        if other is not None:
            raise TypeError(f'{other} is a {type(inputs[other]).__name__}, but only tensors can be exported')
        if not any(each.dim() for each in inputs.values()):
            raise TypeError('there is no batch among its inputs')
    except TypeError as error:
        name = f'{getattr(module.forward, "__name__", "forward")}{described} of {type(module).__name__}'
        raise TypeError(
            f'the example does not fit {name}: {error}; give the shape of each of its inputs (--shape 3,224,224), or '
            'the model a forward_dummy for the export'
        ) from None
    return dict(inputs)


def _arguments(module: nn.Module, inputs: Tensors) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The inputs as ``forward`` takes them, by position where that is possible."""
    bound = signature(module.forward).bind(**inputs)
    return bound.args, bound.kwargs


def _dynamic_sizes(example: Tensors, dynamic: Mapping[str, str]) -> dict[str, dict[int, str]]:
    """The names of each input's dynamic sizes by dimension: those of ``dynamic``, and the batch."""
    known = [f'{name}.{index}' for name, each in example.items() for index in range(1, each.dim())]
    count = next(len(each) for each in example.values() if each.dim())
    sizes = {name: {0: 'batch'} if each.dim() and len(each) == count else {} for name, each in example.items()}
    for key, name in dynamic.items():
        if key not in known:
            raise ValueError(
                f'dynamic={key!r} is no size of the inputs{suggestion(key, known)}; they have {", ".join(known)} '
                '(input.dimension; the batch, 0, is always dynamic)'
            )
        if not name.isidentifier() or name == 'batch':
            raise ValueError(f'the name of the size {key!r} must be a word other than batch, but got {name!r}')
        of, _, index = key.rpartition('.')
        sizes[of][int(index)] = name
    return sizes


def _resized(example: Tensors, count: int, sizes: Mapping[str, Mapping[int, str]], longer: int = 0) -> Tensors:
    """``example`` with ``count`` samples, repeated if it has fewer; other dynamic sizes have at least 2, and ``longer``
    more."""
    resized = {}
    for key, tensor in example.items():
        for dim, name in sizes[key].items():
            length = count if name == 'batch' else max(2, tensor.shape[dim]) + longer  # a size of 1 would be fixed
            tensor = tensor.index_select(dim, torch.arange(length) % tensor.shape[dim])
        resized[key] = tensor
    return resized


# --- formats ---------------------------------------------------------------------------------------------------------


def _traced(network: _Network) -> Any:
    """The network as a program with dynamic sizes."""
    args, kwargs = _arguments(network.module, network.example)
    shapes = network.shapes_by(torch.export.Dim)
    try:
        return torch.export.export(network.module, args, kwargs, dynamic_shapes=shapes, strict=False)
    except Exception as error:
        raise ValueError(
            f'torch.export cannot take {network.name}: {_without_advice(error)}. Write that line with operations of '
            'torch alone (torch.where in place of if, x.shape[0] in place of a fixed batch size); or write a method '
            'forward_dummy of the model without it, which is then exported'
        ) from None


def _torch_program(network: _Network) -> tuple[bytes, Run]:
    """A program of `torch.export`, which runs without the model's code."""
    buffer = io.BytesIO()
    with _quiet():
        try:
            torch.export.save(_traced(network), buffer, extra_files={'metadata.json': json.dumps(network.metadata)})
        except NotImplementedError as error:  # of torch.return_types.topk, for one
            raise ValueError(
                f'.pt2 cannot express what {network.name} returns: {_without_advice(error)}; write tuple(x.topk(5)) '
                'in place of x.topk(5), or write .onnx'
            ) from None
        content = buffer.getvalue()
        module = torch.export.load(io.BytesIO(content)).module()
    return content, lambda inputs: list(outputs_of(network.call(module, inputs)).values())


def _onnx(network: _Network) -> tuple[bytes, Run]:
    """An ONNX model, whose inputs are the arguments of ``forward``."""
    from onnxruntime import InferenceSession

    names = list(network.example)
    computed = outputs_of(network.call(copy.deepcopy(network.module), _cloned(network.example)))
    with _quiet():
        program = _traced(network)
        try:
            made = torch.onnx.export(
                program,
                dynamo=True,
                verbose=False,
                input_names=names,
                output_names=[f'{name}_out' if name in names else name for name in computed],
                dynamic_shapes=network.shapes_by(str),
            )
            proto = made.model_proto  # type: ignore[union-attr]
            for key, value in network.metadata.items():
                proto.metadata_props.add(key=key, value=value)
            content = proto.SerializeToString()
            session = InferenceSession(content, providers=['CPUExecutionProvider'])
        except Exception as error:
            while error.__cause__ is not None:  # the first one names the operation
                error = error.__cause__  # type: ignore[assignment]
            raise ValueError(
                f'ONNX cannot express {network.name}: {_without_advice(error)}. Replace that operation in the model, '
                'convert it to float32 if it has another type; or write .pt2, which has all operations of torch'
            ) from None

    def run(inputs: Tensors) -> list[Tensor]:
        return [torch.from_numpy(each) for each in session.run(None, {k: each.numpy() for k, each in inputs.items()})]

    return content, run


#: What a model is exported to, by the extension of the file.
FORMATS: dict[str, Callable[[_Network], tuple[bytes, Run]]] = {'.pt2': _torch_program, '.onnx': _onnx}


def _writer(path: str) -> Callable[[_Network], tuple[bytes, Run]]:
    """The function that writes the format of ``path``."""
    extension = Path(path).suffix.lower()
    if extension not in FORMATS:
        hint = suggestion(extension, FORMATS)
        raise ValueError(f'a model is exported as {", ".join(FORMATS)}, but not as {path}{hint}')
    missing = [name for name in _ONNX_PACKAGES if find_spec(name) is None] if extension == '.onnx' else []
    if missing:
        raise ImportError(
            f'{path} needs {" and ".join(missing)}, which cannot be imported: pip install {" ".join(_ONNX_PACKAGES)}'
        )
    return FORMATS[extension]


def _without_advice(error: Exception) -> str:
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


# --- the comparison --------------------------------------------------------------------------------------------------


def outputs_of(value: Any, name: str = '') -> Tensors:
    """The tensors that a network has returned, by name: ``output``, ``output_0``, or the keys of a dict."""
    if isinstance(value, Tensor):
        return {name or 'output': value}
    if isinstance(value, Mapping):
        items = [(f'{name}_{key}' if name else str(key), item) for key, item in value.items()]
    elif isinstance(value, list | tuple):
        items = [(f'{name or "output"}_{index}', item) for index, item in enumerate(value)]
    elif value is None:
        items = []
    else:
        raise TypeError(f'{name or "the output"} is a {type(value).__name__}, but only tensors can be exported')
    return {key: each for full, item in items for key, each in outputs_of(item, full).items()}


def _cloned(inputs: Tensors) -> Tensors:
    """Copies, as a network may change its input in place."""
    return {name: each.clone() for name, each in inputs.items()}


def _computed(network: _Network, batch: Tensors) -> Tensors:
    """The model's outputs for ``batch``."""
    module = copy.deepcopy(network.module)  # it may change its buffers when it is called
    try:
        outputs = outputs_of(network.call(module, _cloned(batch)))
    except (RuntimeError, ValueError) as error:
        shapes = ', '.join(f'{key} {tuple(each.shape)}' for key, each in batch.items())
        raise_with_context(error, f'{network.name} does not compute anything from {shapes}: ')
    if not any(bool((each == each).any()) for each in outputs.values()):
        raise ValueError(
            f'the outputs of {network.name} are empty or NaN, so that nothing can be compared: give another checkpoint '
            '(--checkpoint), or other inputs (--inputs)'
        )
    return outputs


def _difference(path: Path, expected: Tensors, run: Run, batch: Tensors, tolerance: float) -> float:
    """How far the outputs of the file differ from those of the model; a ValueError if that is too far."""
    try:
        given = run(_cloned(batch))
    except Exception as error:
        raise_with_context(error, f'{path} was not written: it cannot be run with {_COMPARED} samples: ')
    shapes = [[(each.shape, each.dtype) for each in outputs] for outputs in (given, expected.values())]
    difference = max(map(_relative, expected.values(), given)) if shapes[0] == shapes[1] else float('inf')
    if not difference <= tolerance:
        raise ValueError(
            f'{path} was not written: its outputs differ from those of the model by {difference:.1e} (allowed: '
            f'{tolerance:.0e}). Does the network use random numbers or the statistics of the batch in evaluation mode, '
            'or a batch size that is fixed? Allow small differences with --tolerance'
        )
    return difference


def _relative(expected: Tensor, given: Tensor) -> float:
    """The largest difference, relative to the largest finite value; of whole numbers, their difference; inf if NaNs
    differ. Values below 0.01 count as 0.01: rounding may make them differ by more than their share."""
    if expected.is_complex():
        expected, given = torch.view_as_real(expected.resolve_conj()), torch.view_as_real(given.resolve_conj())
    differs = (expected != given) & ~((expected != expected) & (given != given))
    if not bool(differs.any()):
        return 0.0
    largest = float((expected[differs].double() - given[differs].double()).abs().max())
    if expected.is_floating_point():
        largest /= max(0.01, float(expected.double().abs().nan_to_num(0, 0).max()))
    else:
        largest = max(largest, 1.0)  # as floats, two large numbers may be equal
    return largest if largest == largest else float('inf')


def _described(tensor: Tensor, sizes: Mapping[int, str]) -> str:
    """The type and shape of a tensor for the batch that is compared: ``'float32 [batch, 1, 28, 28]'``."""
    shape = [
        sizes[dim] if dim in sizes and (sizes[dim] != 'batch' or size == _COMPARED) else str(size)
        for dim, size in enumerate(tensor.shape)
    ]
    return f'{str(tensor.dtype).removeprefix("torch.")} [{", ".join(shape)}]'
