"""Names in stage files written for PaddleRec, and what to write in their place."""

from __future__ import annotations

#: By name: of an item of the context, a method, a module or a variable.
HINTS = {
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
