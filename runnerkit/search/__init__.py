"""Searches over configs: a study is a pipeline of ordinary runs."""
