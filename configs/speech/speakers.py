# Which of nine men said the two vowels? An Experiment, whose training batch is in experiment.py:
#
#     python tools/train.py configs/speech/speakers.py

seed = 0

runner = dict(type='experiment.py:Speakers')
training = dict(max_iteration=900, valid_interval=45, save_interval=225, log_interval=45)

# The experiment reads these. With fold=0, a fifth of the training utterances is used for validation, which is how the
# settings were chosen. With fold=None, all are used for training, and the test utterances for validation.
utterances = dict(batch_size=18, noise=0.6, fold=None)
speaker_net = dict(width=64, dropout=0.3, lr=3e-3, weight_decay=1e-2)

lr_config = dict(policy='CosineAnnealing', min_lr=0.0, by_epoch=False)
