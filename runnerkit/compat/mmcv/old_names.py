"""Names that code written for MMCV 1.x takes from a module, and that lie elsewhere here.

Found by searching public code for imports from MMCV's modules and for uses of their private names.
"""

from __future__ import annotations

_BY_PACKAGE = {
    'arraymisc': 'dequantize quantize',
    'image': """adjust_brightness adjust_color adjust_contrast adjust_hue adjust_lighting adjust_sharpness auto_contrast
        bgr2gray bgr2hls bgr2hsv bgr2rgb bgr2ycbcr clahe cutout gray2bgr gray2rgb hls2bgr hsv2bgr imconvert imcrop
        imdenormalize imequalize imflip imflip_ imfrombytes iminvert imnormalize imnormalize_ impad impad_to_multiple
        imread imrescale imresize imresize_like imresize_to_multiple imrotate imshear imtranslate imwrite lut_transform
        posterize rescale_size rgb2bgr rgb2gray rgb2ycbcr solarize supported_backends tensor2imgs use_backend ycbcr2bgr
        ycbcr2rgb""",
    'video': """Cache VideoReader concat_video convert_video cut_video dequantize_flow flow_from_bytes flow_warp
        flowread flowwrite frames2video quantize_flow resize_video sparse_flow_from_bytes""",
    'visualization': 'Color color_val flow2rgb flowshow imshow imshow_bboxes imshow_det_bboxes make_color_wheel',
}

#: By name: the package of the installed mmcv that has it.
INSTALLED = {name: package for package, names in _BY_PACKAGE.items() for name in names.split()}

#: Packages that are attributes of the root without being imported by themselves.
PACKAGES = ('arraymisc', 'fileio', 'image', 'utils', 'version', 'video', 'visualization')


#: Names that MMCV has in ``utils``, by our module.
_UTILS: dict[str, str] = {
    '.config': 'Config ConfigDict DictAction',
    '.registry': 'Registry build_from_cfg',
    '.checkpoint.schemes': 'load_url',
    '.compat.mmcv.misc': """
        check_prerequisites concat_list deprecated_api_warning has_method is_list_of is_method_overridden
        is_seq_of is_str is_tuple_of iter_cast list_cast requires_executable requires_package slice_list
        to_1tuple to_2tuple to_3tuple to_4tuple to_ntuple tuple_cast
        check_file_exist find_vcs_root fopen symlink""",
    '.compat.mmcv.testing': """
        assert_attrs_equal assert_dict_contains_subset assert_dict_has_keys assert_is_norm_layer
        assert_keys_equal assert_params_all_zeros check_python_script""",
    '.compat.mmcv.progress': 'track_iter_progress track_parallel_progress track_progress',
    '.compat.mmcv.timer': 'Timer TimerError check_time',
    '.compat.mmcv.version_utils': 'digit_version get_git_hash',
    '.compat.mmcv.torch_layers': """
        BuildExtension CUDAExtension CppExtension DataLoader PoolDataLoader SyncBatchNorm TORCH_VERSION
        _AdaptiveAvgPoolNd _AdaptiveMaxPoolNd _AvgPoolNd _BatchNorm _ConvNd _ConvTransposeMixin
        _InstanceNorm _MaxPoolNd _get_cuda_home get_build_config is_rocm_pytorch torch_meshgrid
        IS_CUDA_AVAILABLE IS_IPU_AVAILABLE IS_MLU_AVAILABLE IS_MPS_AVAILABLE IS_NPU_AVAILABLE
        is_jit_tracing jit skip_no_elena""",
}

#: For each of our modules: the location of each name, as ``module:name`` or ``module``. A leading dot means the
#: package. The same objects are returned, at the first access.
OLD_NAMES: dict[str, dict[str, str]] = {
    'fileio.file_client': {
        name: f'.compat.mmcv.clusters:{name}'
        for name in ('CephBackend', 'LmdbBackend', 'MemcachedBackend', 'PetrelBackend')
    },
    'hooks.optimizer': {
        'GradScaler': 'torch.amp:GradScaler',
        'LossScaler': '.compat.mmcv.loss_scaler:LossScaler',
        '_BatchNorm': 'torch.nn.modules.batchnorm:_BatchNorm',
        'allreduce_grads': '.distributed.collectives:allreduce_grads',
        'logging': 'logging',
        'wrap_fp16_model': '.nn.amp:wrap_fp16_model',
    },
    'nn': {'LossScaler': '.compat.mmcv.loss_scaler:LossScaler'},
    'nn.amp': {'LossScaler': '.compat.mmcv.loss_scaler:LossScaler'},
    'nn.weight_init': {'_get_bases_name': '.compat.mmcv.misc:get_bases_name'},
    'optim.builder': {'register_torch_optimizers': '.compat.mmcv.misc:register_torch_optimizers'},
    'parallel.data_parallel': {'scatter_kwargs': '.parallel.scatter_gather:scatter_kwargs'},
    'runner': {'LossScaler': '.compat.mmcv.loss_scaler:LossScaler'},
    'runner.epoch_based_runner': {
        'get_host_info': '.utils.env:get_host_info',
        'save_checkpoint': '.checkpoint:save_checkpoint',
        'time': 'time',
    },
    'runner.iter_based_runner': {
        'IterLoader': '.data.reader:IterLoader',
        'get_host_info': '.utils.env:get_host_info',
        'save_checkpoint': '.checkpoint:save_checkpoint',
    },
    'utils': {name: f'{home}:{name}' for home, names in _UTILS.items() for name in names.split()},
    'utils.progress': {
        'init_pool': '.compat.mmcv.progress:start_pool',
        **{name: f'.compat.mmcv.progress:{name}' for name in _UTILS['.compat.mmcv.progress'].split()},
    },
}

#: For each class, as ``module:Class``: functions that code written for MMCV calls as its static methods.
OLD_METHODS: dict[str, dict[str, str]] = {
    'config.action:DictAction': {
        '_parse_int_float_bool': '.config.action:parse_scalar',
        '_parse_iterable': '.config.action:parse_value',
    },
    'config.config:Config': {
        '_file2dict': '.config.parse:read_config',
        '_merge_a_into_b': '.config.merge:merge',
        '_pre_substitute_base_vars': '.compat.mmcv.config_files:pre_substitute_base_vars',
        '_substitute_base_vars': '.compat.mmcv.config_files:substitute_base_vars',
        '_substitute_predefined_vars': '.compat.mmcv.config_files:substitute_predefined_vars',
        '_validate_py_syntax': '.compat.mmcv.config_files:validate_py_syntax',
    },
}

#: Modules that have more names, or whose classes have.
MODULES = {*OLD_NAMES, *(name.partition(':')[0] for name in OLD_METHODS)}
