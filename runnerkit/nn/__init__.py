"""Models: built by name, initialised by config; `Supervised` trains one with a loss and metrics, without code."""

from typing import TYPE_CHECKING

from runnerkit.utils.lazy import lazy_getattr

if TYPE_CHECKING:
    from runnerkit.nn.amp import auto_fp16, force_fp32, patch_norm_fp32, wrap_fp16_model
    from runnerkit.nn.base_module import BaseModule, ModuleDict, ModuleList, Sequential
    from runnerkit.nn.builder import LOSSES, METRICS, MODELS, build_model, build_model_from_cfg
    from runnerkit.nn.supervised import Supervised
    from runnerkit.nn.weight_init import (
        INITIALIZERS,
        BaseInit,
        Caffe2XavierInit,
        ConstantInit,
        KaimingInit,
        NormalInit,
        PretrainedInit,
        TruncNormalInit,
        UniformInit,
        XavierInit,
        bias_init_with_prob,
        caffe2_xavier_init,
        constant_init,
        initialize,
        kaiming_init,
        normal_init,
        trunc_normal_,
        trunc_normal_init,
        uniform_init,
        update_init_info,
        xavier_init,
    )

__all__ = [
    'INITIALIZERS',
    'LOSSES',
    'METRICS',
    'MODELS',
    'BaseInit',
    'BaseModule',
    'Caffe2XavierInit',
    'ConstantInit',
    'KaimingInit',
    'ModuleDict',
    'ModuleList',
    'NormalInit',
    'PretrainedInit',
    'Sequential',
    'Supervised',
    'TruncNormalInit',
    'UniformInit',
    'XavierInit',
    'auto_fp16',
    'bias_init_with_prob',
    'build_model',
    'build_model_from_cfg',
    'caffe2_xavier_init',
    'constant_init',
    'force_fp32',
    'initialize',
    'kaiming_init',
    'normal_init',
    'patch_norm_fp32',
    'trunc_normal_',
    'trunc_normal_init',
    'uniform_init',
    'update_init_info',
    'wrap_fp16_model',
    'xavier_init',
]


__getattr__ = lazy_getattr(__name__)
