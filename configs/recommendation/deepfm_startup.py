"""Initialises DeepFM from rating counts: how often each film is liked, and how often each user likes a film."""

from __future__ import annotations

import torch
import torch.distributed as dist

from runnerkit.flow import Context, EngineMode, StartupBase
from runnerkit.parallel import unwrap


class Startup(StartupBase):
    """Sets the bias, and the weights of users and films, from the training ratings, and nothing else.

    A weight is the log-odds that a rating of the user or film is positive, minus those of all ratings.
    """

    #: Smoothing: each user and film gets this many additional ratings, with the overall share of positive ones.
    more = 5.0

    def startup(self, context: Context) -> None:
        if context.resume_from is not None:
            return
        if context['engine'] == EngineMode.SINGLE:
            self._single_startup(context)
        else:
            self._cluster_startup(context)
        self.load(context)  # the weights of init_model_path, if it is given

    def _single_startup(self, context: Context) -> None:
        net = unwrap(context.model).model
        ratings = context.loaders[0].dataset
        features, liked = ratings[[*range(len(ratings))]]
        ids, share = features[:, :2].flatten(), liked.mean()  # user and film of each rating
        size = len(net.weights.weight)
        number, likings = ids.bincount(minlength=size), ids.bincount(liked.repeat_interleave(2), minlength=size)
        shares = (likings + self.more * share) / (number + self.more)
        bias, odds = (torch.logit(each, eps=0.001) for each in (share, shares))  # with few samples, all may be positive
        with torch.no_grad():
            net.bias.copy_(bias)
            net.weights.weight[:, 0].copy_(odds - bias)
        message = 'initialised the weights of %d users and films from %d ratings'
        context.logger.info(message, number.count_nonzero(), len(liked))

    def _cluster_startup(self, context: Context) -> None:
        """One process counts and sends the result to the others."""
        net = unwrap(context.model).model
        if context.rank == 0:
            self._single_startup(context)
        for part in (net.weights.weight, net.bias):
            dist.broadcast(part.detach(), 0)
