"""Names in stage files written for PaddleRec that have no counterpart of the same name, and what takes their place."""

from __future__ import annotations

#: By name: of an item of the context, a method, a module or a variable.
WORDS = {
    'env': 'context.cfg has the settings; the phases are context.workflow, and their data context.loaders',
    'envs': 'context.cfg has the settings: envs.get_global_env("runner.….epochs") is context.cfg.runner.max_epochs',
    'phase': 'the phases are context.workflow, and their data context.loaders',
    'model': 'the model is context.model, or unwrap(context.model) without its wrapper',
    'dataset': 'the data are in context.loaders, one for each phase',
    'exe': 'PyTorch has no executor: call the model, or context.runner.train(context.loaders[0])',
    'fleet': 'context.rank and context.world_size say what fleet does; start the processes with torchrun',
    'fluid': 'the weights are those of context.model (a torch.nn.Module); context.runner.save() saves them',
    'paddle': 'models are torch.nn.Modules here: import torch',
    'paddlerec': 'import the base of a stage from runnerkit.flow; context.cfg has the settings',
    '_run': 'a pass over a phase is context.runner.train(context.loaders[0])',
    '_executor_dataset_train': 'a pass over a phase is context.runner.train(context.loaders[0])',
    '_executor_dataloader_train': 'a pass over a phase is context.runner.train(context.loaders[0])',
}


def way_out(error: BaseException) -> str:
    """What takes the place of the name that ``error`` could not find; empty if it is not one of PaddleRec's."""
    if not isinstance(error, (NameError, AttributeError, ModuleNotFoundError)):
        return ''
    return WORDS.get((getattr(error, 'name', None) or '').partition('.')[0], '')
