"""Private helpers of MMCV, and names that it has in passing, which public code of the MMCV 1.x era takes from it.

Found in November 2026 by listing what MMCV 1.7.2 defines or imports in these packages and runnerkit does not have at
that path, and by searching an index of public repositories for each of them, and for imports from each module.
"""

import importlib
import inspect

import pytest
from support import tiny_runner

from runnerkit.compat.mmcv.old_names import MODULES, OLD_METHODS, OLD_NAMES
from runnerkit.hooks import EMAHook, Fp16OptimizerHook

#: What is used, by MMCV's path: names in a module, or members of a class.
USED = {
    'cnn.utils.weight_init': '_get_bases_name BaseInit._get_init_info PretrainedInit._get_init_info',
    'fileio.file_client': 'FileClient._backends FileClient._prefix_to_backends HTTPBackend PetrelBackend',
    'fileio.io': 'file_handlers',
    'parallel._functions': 'Scatter.forward Tensor _get_stream get_input_device scatter synchronize_stream torch',
    'parallel.data_parallel': 'scatter_kwargs',
    'parallel.distributed': 'MMDistributedDataParallel.to_kwargs MMDistributedDataParallel._run_ddp_forward',
    'parallel.scatter_gather': 'scatter scatter_kwargs',
    'runner': '_load_checkpoint',
    'runner.checkpoint': '_load_checkpoint _load_checkpoint_with_prefix _process_mmcls_checkpoint load_from_http',
    'runner.dist_utils': 'allreduce_grads allreduce_params master_only',
    'runner.epoch_based_runner': 'get_host_info save_checkpoint time',
    'runner.iter_based_runner': 'IterLoader get_host_info save_checkpoint',
    'runner.fp16_utils': 'LossScaler cast_tensor_type',
    'runner.hooks.evaluation': 'EvalHook._do_evaluate EvalHook._init_rule EvalHook._save_ckpt '
    'EvalHook._should_evaluate',
    'runner.hooks.logger.text': 'TextLoggerHook._dump_log TextLoggerHook._get_max_memory TextLoggerHook._log_info '
    'TextLoggerHook._round_float',
    'runner.hooks.lr_updater': 'annealing_cos annealing_linear',
    'runner.hooks.optimizer': 'GradScaler Hook HOOKS LossScaler Tensor _BatchNorm allreduce_grads logging nn '
    'wrap_fp16_model',
    'runner.optimizer.builder': 'TORCH_OPTIMIZERS register_torch_optimizers',
    'runner.utils': 'obj_from_dict set_random_seed',
    'utils.config': 'BASE_KEY DEPRECATION_KEY DELETE_KEY RESERVED_KEYS Config._file2dict Config._merge_a_into_b '
    'Config._pre_substitute_base_vars Config._substitute_base_vars Config._substitute_predefined_vars '
    'Config._validate_py_syntax DictAction._parse_int_float_bool DictAction._parse_iterable',
    'utils.ext_loader': 'check_ops_exist load_ext',
    'utils.logging': 'logger_initialized',
    'utils.misc': 'has_method import_modules_from_strings is_method_overridden to_2tuple',
    'utils.parrots_wrapper': '_BatchNorm _get_conv _get_dataloader _get_extension _get_norm _get_pool',
    'utils.path': 'check_file_exist is_filepath',
    'utils.progressbar': 'init_pool',
    'utils.registry': 'Registry._register_module',
    'utils.testing': 'assert_dict_has_keys',
    'utils.version_utils': '_minimal_ext_cmd',
}

#: Looked for, and used by nobody but copies of MMCV's own code: not provided.
NOT_USED = """
    device.npu.data_parallel:_check_balance fileio.file_client:FileClient._register_backend
    fileio.handlers.json_handler:set_default fileio.io:_register_handler fileio.io:FileLikeObject
    parallel.data_container:assert_tensor_type parallel.scatter_gather:ScatterInputs
    runner.dist_utils:_allreduce_coalesced runner.dist_utils:_find_free_port runner.dist_utils:_init_dist_mpi
    runner.dist_utils:_init_dist_pytorch runner.dist_utils:_init_dist_slurm runner.dist_utils:_is_free_port
    runner.hooks.lr_updater:CyclicLrUpdaterHook.lr_phases utils.config:add_args utils.hub:_legacy_zip_load
    utils.misc:_check_executable utils.misc:_check_py_package utils.misc:_ntuple utils.testing:_any
    utils.parrots_wrapper:is_cuda_available utils.timer:_g_timers
""".split()

#: Where runnerkit has a module of MMCV's elsewhere, but under ``mmcv``.
OURS = {'cnn.utils.weight_init': 'nn.weight_init'}
ROWS = [(path, name) for path, names in USED.items() for name in names.split()]


def found(package, path, name):
    owner, _, member = name.rpartition('.')
    home = importlib.import_module(f'{package}.{path}')
    return inspect.getattr_static(getattr(home, owner), member) if owner else getattr(home, name)


def test_what_public_code_uses_is_there(compat):
    lacking = {}
    for path, name in ROWS:
        try:
            if found('mmcv', path, name) is not found('runnerkit', OURS.get(path, path), name):
                lacking[path, name] = 'another object'
        except (AttributeError, ImportError) as error:
            lacking[path, name] = error
    assert lacking == {}


@pytest.mark.parametrize('place', NOT_USED)
def test_what_is_not_provided_is_told_as_missing(place):
    path, _, name = place.partition(':')
    with pytest.raises(AttributeError, match=name.rpartition('.')[2]):
        found('runnerkit', path, name)


def test_every_old_name_is_in_the_table_of_uses():
    places = {f'{module}:{name}' for module, names in OLD_NAMES.items() for name in names}
    assert all(importlib.import_module(f'runnerkit.{module}').__name__ == f'runnerkit.{module}' for module in MODULES)
    used = set()
    for path, name in ROWS:
        home = importlib.import_module(f'runnerkit.{OURS.get(path, path)}')
        used.add(f'{home.__name__.removeprefix("runnerkit.")}:{name}')
    # A package hands on what one of its modules has.
    more = {
        f'{module}:{name}' for module in ('utils', 'utils.progress', 'fileio.file_client') for name in OLD_NAMES[module]
    }
    assert places - used - more == {'nn:LossScaler', 'runner:LossScaler'}
    assert {name for methods in OLD_METHODS.values() for name in methods} <= {
        name.rpartition('.')[2] for _, name in ROWS
    }


def test_names_of_a_class_are_the_functions_themselves():
    from runnerkit.config import Config, DictAction, action, merge, parse

    assert Config._merge_a_into_b is merge.merge
    assert Config._file2dict is parse.read_config
    assert DictAction._parse_iterable is action.parse_value
    merged = Config._merge_a_into_b({'a': {'0': 3}}, {'a': [1, 2], 'b': 4}, allow_list_keys=True)
    assert merged == {'a': [3, 2], 'b': 4}


def test_attributes_that_code_reads_of_objects():
    runner = tiny_runner(max_epochs=1)
    for name in '_epoch _hooks _inner_iter _iter _max_epochs _max_iters _model_name _rank _world_size'.split():
        assert hasattr(runner, name), name
    hook = EMAHook()
    hook.before_run(runner)
    assert hook.model_buffers[hook.param_ema_buffer['head.weight']].shape == hook.model_parameters['head.weight'].shape
    assert Fp16OptimizerHook(loss_scale=4.0)._scale_update_param == 4.0


def test_the_data_loader_is_torchs():
    """mmpose's data sets do not import without it."""
    from runnerkit.utils.parrots_wrapper import _get_dataloader
    from torch.utils.data import DataLoader

    assert _get_dataloader() == (DataLoader, DataLoader)


def test_a_star_brings_what_mmcvs_package_has():
    scope = {}
    exec('from runnerkit.runner import *', scope)
    assert scope['LossScaler'] is importlib.import_module('runnerkit.compat.mmcv.loss_scaler').LossScaler


def test_a_name_that_is_nowhere_is_an_ordinary_error():
    module = importlib.import_module('runnerkit.optim.builder')
    with pytest.raises(AttributeError, match=r"module 'runnerkit.optim.builder' has no attribute 'register_tensors'"):
        module.register_tensors  # noqa: B018
    with pytest.raises(ImportError, match='cannot import name'):
        exec('from runnerkit.runner import LossScalr')


def test_names_of_utils_that_only_mmcvs_code_uses():
    names = [name for name, home in OLD_NAMES['utils'].items() if home.startswith('.compat')]
    assert len(names) == 66
    utils = importlib.import_module('runnerkit.utils')
    assert all(getattr(utils, name) is not None or name == '_get_cuda_home' for name in names)
