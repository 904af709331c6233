"""The five stages of a run, and what they are made of."""
