"""Keras with torch as its backend (KERAS_BACKEND=torch)."""

import os
import sys

os.environ['KERAS_BACKEND'] = 'torch'
import keras
import torch
from job import BATCH_SIZE, EPOCHS, LR, wines
from keras import layers
from torch.utils.data import DataLoader

folder = sys.argv[1]
keras.utils.set_random_seed(0)
train = DataLoader(wines('train'), batch_size=BATCH_SIZE, shuffle=True)
val = DataLoader(wines('val'), batch_size=BATCH_SIZE)
model = keras.Sequential(
    [keras.Input((13,)), layers.Dense(32, activation='relu'), layers.Dropout(0.1), layers.Dense(3)]
)
model.compile(
    optimizer=keras.optimizers.AdamW(learning_rate=LR),
    loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    metrics=['accuracy'],
)
saves = keras.callbacks.BackupAndRestore(f'{folder}/backup', save_freq=2)
model.fit(train, validation_data=val, epochs=EPOCHS, callbacks=[saves], verbose=2)
torch.save({weight.path: weight.value for weight in model.weights}, f'{folder}/weights.pt')
