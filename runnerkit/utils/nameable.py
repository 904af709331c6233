"""May the config in a file from elsewhere, such as a checkpoint, name this class or function? The one place that says.

What the config names is called with arguments of the config. So it may be named only if it does no more than compute,
whatever its arguments are. It opens no connection, no file but those that the user has named, and writes nothing.

- A class or function of runnerkit says so in its own definition, `nameable`. Subclasses do not inherit this.
- One of torch or another library in `_ROWS` needs a row there.
- Anything else is the user's own, who has imported the module that registers it: it may be named if all that it
  inherits from runnerkit may be. Where its arguments name a place (`names_place`), runnerkit refuses them.
"""

from __future__ import annotations

import inspect
import os
import re
import sys
from typing import Any, TypeVar

from runnerkit.utils.user_files import is_ours

_Made = TypeVar('_Made')

_listed: set[Any] = set()

#: What may be named of libraries, by the module that offers it. Of a package in this table, nothing else may.
_ROWS = {
    'torch.nn': (
        'AdaptiveAvgPool1d AdaptiveAvgPool2d AdaptiveAvgPool3d AdaptiveLogSoftmaxWithLoss AdaptiveMaxPool1d '
        'AdaptiveMaxPool2d AdaptiveMaxPool3d AlphaDropout AvgPool1d AvgPool2d AvgPool3d BCELoss BCEWithLogitsLoss '
        'BatchNorm1d BatchNorm2d BatchNorm3d Bilinear CELU CTCLoss ChannelShuffle CircularPad1d CircularPad2d '
        'CircularPad3d ConstantPad1d ConstantPad2d ConstantPad3d Conv1d Conv2d Conv3d ConvTranspose1d '
        'ConvTranspose2d ConvTranspose3d CosineEmbeddingLoss CosineSimilarity CrossEntropyLoss CrossMapLRN2d '
        'Dropout Dropout1d Dropout2d Dropout3d ELU Embedding EmbeddingBag FeatureAlphaDropout Flatten Fold '
        'FractionalMaxPool2d FractionalMaxPool3d GELU GLU GRU GRUCell GaussianNLLLoss GroupNorm Hardshrink '
        'Hardsigmoid Hardswish Hardtanh HingeEmbeddingLoss HuberLoss Identity InstanceNorm1d InstanceNorm2d '
        'InstanceNorm3d KLDivLoss L1Loss LPPool1d LPPool2d LPPool3d LSTM LSTMCell LayerNorm LazyBatchNorm1d '
        'LazyBatchNorm2d LazyBatchNorm3d LazyConv1d LazyConv2d LazyConv3d LazyConvTranspose1d LazyConvTranspose2d '
        'LazyConvTranspose3d LazyInstanceNorm1d LazyInstanceNorm2d LazyInstanceNorm3d LazyLinear LeakyReLU Linear '
        'LinearCrossEntropyLoss LocalResponseNorm LogSigmoid LogSoftmax MSELoss MarginRankingLoss MaxPool1d '
        'MaxPool2d MaxPool3d MaxUnpool1d MaxUnpool2d MaxUnpool3d Mish ModuleDict ModuleList MultiLabelMarginLoss '
        'MultiLabelSoftMarginLoss MultiMarginLoss MultiheadAttention NLLLoss NLLLoss2d PReLU PairwiseDistance '
        'ParameterDict ParameterList PixelShuffle PixelUnshuffle PoissonNLLLoss RMSNorm RNN RNNBase RNNCell '
        'RNNCellBase RReLU ReLU ReLU6 ReflectionPad1d ReflectionPad2d ReflectionPad3d ReplicationPad1d '
        'ReplicationPad2d ReplicationPad3d SELU Sequential SiLU Sigmoid SmoothL1Loss SoftMarginLoss Softmax '
        'Softmax2d Softmin Softplus Softshrink Softsign SyncBatchNorm Tanh Tanhshrink Threshold Transformer '
        'TransformerDecoder TransformerDecoderLayer TransformerEncoder TransformerEncoderLayer TripletMarginLoss '
        'TripletMarginWithDistanceLoss Unflatten Unfold Upsample UpsamplingBilinear2d UpsamplingNearest2d '
        'ZeroPad1d ZeroPad2d ZeroPad3d'
    ),
    'torch.utils.data': (
        'BatchSampler ConcatDataset DistributedSampler RandomSampler SequentialSampler WeightedRandomSampler'
    ),
    # Their models and data sets download by name.
    **dict.fromkeys(('torchvision', 'torchaudio', 'torchmetrics', 'timm', 'transformers'), ''),
}

_LIBRARIES = {module.partition('.')[0] for module in _ROWS}

#: A path, a URL, a host, a file in the current folder, or the dotted name of something that could be imported.
_PLACE = r'[/\\:\0$]|^\s*[~%]|\.\d*[^\W\d]|^\.+$|^\d+(\.\d+){3}$|^localhost$|^-$'
#: Words in the names of arguments that say where something is, or what to download.
_PLACES = (
    r'(?:^|_)((data|image|img|ann|work|out|in|log|save|base|cache|meta|file)?(path|file|dir|folder|root)s?|'
    r'(path|file|folder|dir|host)names?|(ur[li]|host|server|endpoint|bucket|socket|proxy|checkpoint|ckpt)s?|'
    r'address(es)?|dest|dst|destination|cache|storage|database|db|log|save|weights)(?:_|$)'
)
_DOWNLOADS = r'(?:^|_)download(?:_|$)'
_DEVICE = r'(cpu|cuda|xpu|mps|meta|npu|mlu)(:\d+)?'


def nameable(made: _Made) -> _Made:
    """Mark a class or function, as a decorator: a file from elsewhere may name it, with any arguments.

    This means that it computes, or reads files that the user has named; it opens no connection and no other file, and
    writes nothing. A subclass needs its mark.
    """
    _listed.add(made)
    return made


def is_nameable(made: Any) -> bool:
    """Whether a file from elsewhere may name this class or function."""
    if made in _listed:
        return True
    module = getattr(made, '__module__', None) or ''
    if is_ours(module):
        return False
    if module.partition('.')[0] in _LIBRARIES:
        name = made.__name__
        return any(
            name in names.split() and getattr(sys.modules.get(row), name, None) is made for row, names in _ROWS.items()
        )
    bases = inspect.getmro(made) if inspect.isclass(made) else ()
    return all(base in _listed for base in bases if is_ours(base.__module__))


def is_listed(made: Any) -> bool:
    """Whether `is_nameable` is known of its definition or its row, so that its arguments need not be looked at."""
    module = getattr(made, '__module__', None) or ''
    return made in _listed or (module.partition('.')[0] in _LIBRARIES and is_nameable(made))


def names_place(key: Any, value: Any) -> bool:
    """Whether an argument of a config may say where something is: a path, a URL, a host, or a name to import.

    A single word does so if the argument's name says it (``data_root='points'``), or if there is a file of that name in
    the current folder.

    Args:
        key: the name of the argument; of a key in a dict, None.
        value: neither a list nor a dict.
    """
    if isinstance(value, bytes) or (value and re.search(_DOWNLOADS, str(key), re.IGNORECASE)):
        return True
    if not isinstance(value, str) or re.fullmatch(_DEVICE, value):
        return False
    is_file = os.path.lexists(value) and not os.path.isdir(value)
    return bool(value and (re.search(_PLACES, str(key), re.IGNORECASE) or re.search(_PLACE, value) or is_file))
