"""Using a trained model: load it, predict with it, test, export and publish it."""
