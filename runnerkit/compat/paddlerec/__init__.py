"""PaddleRec 1.8.5: its yaml configs, and hints for names in its stage files."""
