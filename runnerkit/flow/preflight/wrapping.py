"""Checks of ``model_wrapper``, of what belongs to it, and of ``dist_params``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from runnerkit.config.findings import Finding
from runnerkit.flow.preflight.plan import Plan
from runnerkit.flow.stages.wrapping import OLD_KEYS, wrapper_of


def wrapper_keys(plan: Plan) -> Iterator[Finding]:
    """Keys of ``model_wrapper`` that contradict each other, or a top-level key of MMCV's."""
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
