"""A trained model as a file that other programs run: `torch.export` or ONNX."""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from inspect import BoundArguments, Parameter, signature
from pathlib import Path
from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn

from runnerkit.checkpoint.atomic import write_atomically
from runnerkit.config import Config
from runnerkit.fileio.paths import local_target
from runnerkit.flow.stages.process_state import preserved_process_state
from runnerkit.flow.use.export_formats import (
    FORMATS,
    Exportable,
    batch_size_of,
    check_export_format,
    inputs_of,
    mapped,
    outputs_of,
)
from runnerkit.flow.use.load import Trained, build_trained, without_places
from runnerkit.flow.use.predict import READERS, Inputs, find_to_predict, loader_of, on_device, splits, words_of
from runnerkit.nn import Supervised
from runnerkit.utils.exceptions import raise_with_context
from runnerkit.utils.logging import printable
from runnerkit.utils.suggest import suggestion
from runnerkit.version import __version__

#: The network is traced with two samples, and compared with other numbers of them: a fixed batch size would show.
_TRACED, _COMPARED = 2, (1, 3)

Shapes = Sequence[int] | Sequence[Sequence[int]]


@dataclass
class Exported:
    """A file that a model was exported to.

    Attributes:
        path: the file.
        checkpoint: where the weights are from.
        network: what it is: the network of a `Supervised`, a model, or one of their methods.
        inputs: the shape of each input by name; the first dimension of a batch is ``'batch'``.
        outputs: the same for the outputs.
        difference: the largest difference between the file's outputs and the model's, relative to the largest output;
            of whole numbers, their difference.
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
        sizes = ' and '.join(map(str, _COMPARED))
        shapes = [', '.join(f'{name} {shape}' for name, shape in each.items()) for each in (self.inputs, self.outputs)]
        return (
            f'{self.path}: {self.network}, with the weights of {self.checkpoint}\n'
            f'inputs: {shapes[0]}; outputs: {shapes[1]}\n'
            f'compared with the model at the batch sizes {sizes}: the largest difference is {self.difference:.1e} '
            f'(allowed: {self.tolerance:.0e})'
        )


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
    """Write a trained model to a file, load that back, and compare its outputs with the model's.

    ::

        runnerkit.export('work_dirs/lenet', 'lenet.onnx')

    What is exported is the network of a `Supervised`; else the model's ``forward_dummy`` (MMCV), if it has one; else
    its ``forward``. The number of samples in a batch may be any, other sizes are those of the example unless they are
    ``dynamic``.

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
        dynamic: sizes that may be any, too, by input and dimension (0 is the batch), with a name; sizes of one name are
            equal: ``{'words.1': 'length', 'mask.1': 'length'}``. The file is also compared at other sizes.
        tolerance: how far outputs may differ, relative to the largest one; below 1, whole numbers must be equal.
        trust: see `load_model`.
        cfg_options: changes of the config as with ``--cfg-options``, by dotted key.

    Raises:
        FileNotFoundError: there is no such work dir, checkpoint, config or input.
        ImportError: the format needs a package that is not installed.
        TypeError: the network takes or returns something other than tensors.
        ValueError: the format is not known; torch cannot export the network; the file computes something else; the
            outputs are NaN or empty, so that nothing can be compared; or see `load_model`.
    """
    extension, path = check_export_format(os.fspath(out)), local_target(out)
    if not tolerance >= 0:
        raise ValueError(f'tolerance must be at least 0, but got {tolerance}')
    if inputs is not None and shape is not None:
        raise ValueError('the example is either inputs or of a shape: give one of the two')
    inputs = None if inputs is None else words_of(inputs)  # inputs may be a generator
    wanted = None if shape is not None else _example_split if inputs is None else inputs
    trained = find_to_predict(source, checkpoint, config, which, trust, wanted)
    if cfg_options:
        trained = trained._replace(cfg=copy.copy(trained.cfg))  # the caller's own is not changed
        trained.cfg.merge_from_dict(cfg_options)
    with preserved_process_state(), torch.no_grad():
        model = build_trained(trained)
        name, module = network_of(model)
        if shape is not None:
            example = _of_shape(model, module, shape)
        else:
            example = _first_batch(trained.cfg, model, module, inputs)
        dynamic = {} if dynamic is None else _checked(dynamic, example)
        batches = {count: _resized(example, count, dynamic) for count in (_TRACED, *_COMPARED)}
        with _unchanged(model):
            # Copies, as a network may change its input in place.
            expected = {count: _called(module, mapped(batches[count], Tensor.clone), name) for count in batches}
        _check_comparable(name, [expected[n] for n in _COMPARED])
        network = Exportable(name, module, batches[_TRACED], _origin(trained), dynamic)
        content, run = FORMATS[extension](network)
        difference = max(_difference(path, expected[n], run, batches[n], n, tolerance) for n in _COMPARED)
    write_atomically(path, content)
    given, answered = (
        {name: _shown(each, many[name]) for name, each in few.items()}
        for few, many in ([inputs_of(batches[n]) for n in _COMPARED], [expected[n] for n in _COMPARED])
    )
    return Exported(path, trained.path, name, given, answered, difference, tolerance)


def _example_split(cfg: Config) -> str:
    """The split whose first batch is the example."""
    known = splits(cfg)
    found = next((each for key in READERS for each in known if each.partition('/')[0] == key), None)
    if found is None:
        raise KeyError(
            f"the config's data has no {' and no '.join(READERS)}, whose first batch would be the example: give the "
            'shape of a sample instead, shape=(3, 224, 224) (--shape 3,224,224)'
        )
    return found


# --- what is exported ------------------------------------------------------------------------------------------------


def network_of(model: nn.Module) -> tuple[str, nn.Module]:
    """What is exported of ``model``: in words, and as a module whose ``forward`` it is."""
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


def _origin(trained: Trained) -> dict[str, str]:
    """What a file says about where it is from."""
    meta = trained.content.get('meta', {})
    told = {'runnerkit_version': __version__, 'checkpoint': os.path.basename(trained.path)}
    for key in ('epoch', 'iter', 'CLASSES', 'config'):
        if isinstance(meta.get(key), str | int | list | tuple):
            told[key] = without_places(meta[key]) if isinstance(meta[key], str) else json.dumps(meta[key])
    return told


# --- the example -----------------------------------------------------------------------------------------------------


def _first_batch(cfg: Config, model: nn.Module, module: nn.Module, inputs: Inputs | None) -> BoundArguments:
    """The arguments that the first batch of ``inputs`` gives the network."""
    meant = _example_split(cfg) if inputs is None else inputs
    try:
        batch = on_device(next(iter(loader_of(cfg, meant))), torch.device('cpu'))
    except Exception as error:
        way_out = 'name other inputs (--inputs), or the shape of a sample (--shape 3,224,224)'
        raise_with_context(error, '', f'. This was to be the example for the export: {way_out}')
    if isinstance(model, Supervised) and module is not model:
        args, kwargs = model.arguments(batch)
    else:
        args, kwargs = _fields(batch, module.forward)
    return _bound(module, args, kwargs)


def _fields(batch: Any, function: Callable[..., Any]) -> tuple[list[Any], dict[str, Any]]:
    """The fields of ``batch`` that ``function`` needs: those of its names, or as many as it needs."""
    needed = [
        name
        for name, each in signature(function).parameters.items()
        if each.default is Parameter.empty and each.kind not in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
    ]
    if isinstance(batch, Mapping):
        return [], {name: batch[name] for name in needed if name in batch}
    return (list(batch[: max(1, len(needed))]) if isinstance(batch, list | tuple) else [batch]), {}


def _of_shape(model: nn.Module, module: nn.Module, shape: Shapes) -> BoundArguments:
    """Random numbers of the given shapes, as the arguments of the network."""
    shapes: list[Any] = [shape] if all(isinstance(size, int) for size in shape) else list(shape)
    for each in shapes:
        if not isinstance(each, list | tuple) or not all(isinstance(size, int) and size > 0 for size in each):
            raise ValueError(f'a shape must be whole numbers above 0, such as (1, 28, 28), but got {each!r}')
    generator = torch.Generator().manual_seed(0)
    made = [torch.randn(max(_COMPARED), *each, generator=generator) for each in shapes]
    if isinstance(model, Supervised) and module is not model and isinstance(model.inputs, Mapping):
        return _bound(module, [], dict(zip(model.inputs, made, strict=False)))
    return _bound(module, made, {})


def _bound(module: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> BoundArguments:
    """The arguments of ``forward`` by name.

    Raises:
        TypeError: they do not fit, or are no tensors.
    """
    described = signature(module.forward)
    name = f'{getattr(module.forward, "__name__", "forward")}{described} of {type(module).__name__}'
    way_out = 'give the shape of each of its inputs (--shape 3,224,224), or the model a forward_dummy for the export'
    try:
        bound = described.bind(*args, **kwargs)
        if not batch_size_of(bound):
            raise TypeError('there is no batch among its inputs')
    except TypeError as error:
        raise TypeError(f'the example does not fit {name}: {error}; {way_out}') from None
    return bound


def _checked(dynamic: Mapping[str, str], example: BoundArguments) -> dict[str, str]:
    """``dynamic``, if the example has these inputs and dimensions."""
    inputs = inputs_of(example)
    known = [f'{name}.{index}' for name, each in inputs.items() for index in range(1, each.dim())]
    for key, name in dynamic.items():
        if key not in known:
            raise ValueError(
                f'dynamic={key!r} is no size of the inputs{suggestion(key, known)}; they have {", ".join(known)} '
                '(input.dimension; the batch, 0, may always be any)'
            )
        if not name.isidentifier() or name == 'batch':
            raise ValueError(f'the name of the size {key!r} must be a word other than batch, but got {name!r}')
    return dict(dynamic)


def _resized(example: BoundArguments, count: int, dynamic: Mapping[str, str] = {}) -> BoundArguments:
    """``example`` with ``count`` samples: its own, repeated if it has fewer. Unless it is to be traced, its dynamic
    sizes are larger than its own."""
    size, names = batch_size_of(example), iter(inputs_of(example))
    rows = torch.arange(count) % size

    def change(each: Tensor) -> Tensor:
        name = next(names)
        for key in dynamic:
            of, _, index = key.rpartition('.')
            if of == name:
                length = max(2, each.shape[int(index)])  # a size of 1 would be traced as fixed
                length += 0 if count == _TRACED else count
                each = each.index_select(int(index), torch.arange(length) % each.shape[int(index)])
        return each[rows] if each.dim() and len(each) == size else each

    return mapped(example, change)


# --- the comparison --------------------------------------------------------------------------------------------------


def _called(module: nn.Module, batch: BoundArguments, name: str) -> dict[str, Tensor]:
    try:
        return outputs_of(module(*batch.args, **batch.kwargs))
    except Exception as error:
        shapes = ', '.join(f'{key} {tuple(each.shape)}' for key, each in inputs_of(batch).items())
        raise_with_context(error, f'{name} does not compute anything from {shapes}: ')


@contextmanager
def _unchanged(model: nn.Module) -> Iterator[None]:
    """Give ``model`` its tensors back that it changes when it is called: counters, statistics of a batch norm."""
    before = {name: value.clone() for name, value in model.state_dict().items() if isinstance(value, Tensor)}
    yield
    for name, value in model.state_dict().items():
        if name in before and value.shape != before[name].shape:
            raise ValueError(
                f'{type(model).__name__} changes the shape of {name} when it is called: it has no one state'
            )
        if name in before:
            value.copy_(before[name])


def _check_comparable(name: str, outputs: Sequence[Mapping[str, Tensor]]) -> None:
    """Check that a comparison of ``outputs``, one for each batch size, says something.

    Raises:
        ValueError: there is nothing in them, or one is NaN everywhere.
    """
    for output in outputs:
        for key, each in output.items():
            if each.numel() and bool((each != each).all()):
                raise ValueError(
                    f'{key} of {name} is NaN everywhere, so that nothing can be compared: has the training diverged? '
                    'Give another checkpoint (--checkpoint), or other inputs (--inputs)'
                )
    if not any(each.numel() for output in outputs for each in output.values()):
        raise ValueError(
            f'{name} returns no numbers for the example, so that nothing can be compared: give other inputs '
            '(--inputs), or export another method, in forward_dummy of the model'
        )


def _difference(
    path: Path,
    expected: Mapping[str, Tensor],
    run: Callable[[BoundArguments], list[Tensor]],
    batch: BoundArguments,
    count: int,
    tolerance: float,
) -> float:
    """The largest difference between the outputs of the file and those of the model.

    Raises:
        ValueError: it is above ``tolerance``, or the outputs cannot be compared.
    """
    try:
        found = run(batch)
    except Exception as error:
        reason = printable(str(error).strip().partition('\n')[0], 300)
        raise ValueError(
            f'{path} was not written: it cannot be run with the batch size {count}: {reason}. Does the network treat a '
            'batch of that size differently, as squeeze() does?'
        ) from None
    largest = 0.0
    if len(found) != len(expected):
        raise ValueError(f'{path} was not written: it has {len(found)} outputs, but the model {len(expected)}')
    for (name, wanted), given in zip(expected.items(), found, strict=True):
        if (wanted.shape, wanted.dtype) != (given.shape, given.dtype):
            problem = f'is {given.dtype} {tuple(given.shape)} in place of {wanted.dtype} {tuple(wanted.shape)}'
        else:
            difference = _relative(wanted, given)
            largest = max(largest, difference)
            problem = f'differs by {difference:.1e} (allowed: {tolerance:.0e})' if not difference <= tolerance else ''
        if problem:
            raise ValueError(
                f'{path} was not written: {name} {problem} with the batch size {count}. Does the network use random '
                'numbers or the statistics of the batch in evaluation mode, or a batch size that is fixed? Allow small '
                'differences with --tolerance'
            )
    return largest


def _relative(wanted: Tensor, given: Tensor) -> float:
    """The largest difference, relative to the largest finite value of ``wanted``; of whole numbers, their difference.

    It is inf if NaNs differ. Values below 0.01 count as 0.01: rounding may make them differ by more than their share.
    """
    if wanted.is_complex():
        wanted, given = torch.view_as_real(wanted.resolve_conj()), torch.view_as_real(given.resolve_conj())
    same = (wanted == given) | ((wanted != wanted) & (given != given))
    if bool(same.all()):
        return 0.0
    largest = float((wanted[~same].double() - given[~same].double()).abs().max())
    if wanted.is_floating_point():
        finite = wanted[wanted.isfinite()].double().abs()
        largest /= max(0.01, float(finite.max()) if finite.numel() else 0.01)
    else:
        largest = max(largest, 1.0)  # as floats, two large numbers may be equal
    return largest if largest == largest else float('inf')


def _shown(few: Tensor, many: Tensor) -> str:
    """The type and shape of a tensor: ``'float32 [batch, 1, 28, 28]'``.

    Args:
        few: the tensor for a batch of some size.
        many: the tensor for a batch of another size.
    """
    kind = str(few.dtype).removeprefix('torch.')
    if few.dim() != many.dim():  # as of squeeze()
        return f'{kind} {list(few.shape)} or {list(many.shape)}'
    sizes = [
        str(one) if one == other else 'batch' if (one, other) == _COMPARED else 'any'
        for one, other in zip(few.shape, many.shape, strict=True)
    ]
    return f'{kind} [{", ".join(sizes)}]'
