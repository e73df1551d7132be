"""Rules for layers: how per-example gradients follow from what a layer saw. One file a kind of layer."""

from noisette._gradients.rules import attention, convolution, embedding, linear, lora, norms, recurrent
from noisette._gradients.rules.base import Rule, Use, find

__all__ = ["Rule", "Use", "attention", "convolution", "embedding", "find", "linear", "lora", "norms", "recurrent"]
