"""Checks of ``model_wrapper``, of what belongs to it, and of ``dist_params``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch

from runnerkit.config.known_keys import DDP
from runnerkit.config.origin import Finding
from runnerkit.distributed import is_distributed
from runnerkit.distributed.devices import check_backend
from runnerkit.flow.preflight.plan import Plan
from runnerkit.flow.stages.defaults import wrapper_of
from runnerkit.flow.stages.wrapping import OLD_KEYS
from runnerkit.parallel import MODULE_WRAPPERS
from runnerkit.utils.suggest import did_you_mean


def wrapper_fits(plan: Plan) -> Iterator[Finding]:
    """A ``type`` that is not registered, and keys that contradict each other, or a top-level key of MMCV's."""
    named = plan.get('model_wrapper', 'type')
    known = [*DDP, *MODULE_WRAPPERS.names()]
    if isinstance(named, str) and not (named in known or set(named) & set('.:/')):
        usual = "Write 'DDP' or 'FSDP2', or register your class in MODULE_WRAPPERS (custom_imports)."
        hint = did_you_mean(named, known)
        yield plan.error(
            ('model_wrapper', 'type'),
            f'unknown model wrapper {named!r}',
            f'{hint.replace("did", "Did", 1)} {usual}' if hint else usual,
        )
    section = plan.get('model_wrapper')
    section = section if isinstance(section, Mapping) else {}
    if section.get('module_classes') is not None and section.get('min_num_params') is not None:
        yield plan.error(
            ('model_wrapper', 'min_num_params'),
            'module_classes and min_num_params both select what is sharded',
            'Keep one of them.',
        )
    for key in OLD_KEYS:
        given = plan.get(key)
        if given is None:
            continue
        if plan.cfg is not None and wrapper_of(plan.cfg) not in ('DDP', 'FSDP2'):
            yield plan.warning(
                (key,), 'has no effect: only DDP and FSDP2 read it', 'Give it to your wrapper, in model_wrapper.'
            )
        elif section.get(key, given) != given:
            yield plan.error((key,), f'differs from model_wrapper.{key}={section[key]!r}', 'Keep one of them.')


def sharded(plan: Plan) -> Iterator[Finding]:
    """What cannot be done with sharded weights."""
    if plan.cfg is None or wrapper_of(plan.cfg) != 'FSDP2':
        return
    if plan.get('channels_last'):
        yield plan.error(
            ('channels_last',),
            'FSDP2 does not support channels_last weights',
            "Leave channels_last out, or write model_wrapper=dict(type='DDP').",
        )
    if plan.get('optimizer_config', 'detect_anomalous_params'):
        yield plan.error(
            ('optimizer_config', 'detect_anomalous_params'),
            'FSDP2 computes with gathered copies of the weights, so the loss cannot be traced to parameters',
            "Detect them in one process, or with model_wrapper=dict(type='DDP').",
        )


def synced_norms(plan: Plan) -> Iterator[Finding]:
    """``sync_batchnorm`` on the CPU."""
    several = plan.options.launcher != 'none' or is_distributed()
    device = plan.options.device or ('cuda' if torch.cuda.is_available() else 'cpu')
    if plan.get('sync_batchnorm') and several and device == 'cpu':
        yield plan.error(
            ('sync_batchnorm',),
            'torch synchronises batch norms only on GPUs, and this run is on the CPU',
            'Leave it out, or set sync_batchnorm=False.',
        )


def backend(plan: Plan) -> Iterator[Finding]:
    """A ``dist_params.backend`` that torch does not have."""
    named = plan.get('dist_params', 'backend')
    if isinstance(named, str):
        try:
            check_backend(named)
        except ValueError as error:
            what, _, rest = str(error).partition('; ')
            yield plan.error(('dist_params', 'backend'), what, rest[:1].upper() + rest[1:] + '.')
