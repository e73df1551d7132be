"""Rules for layers: how per-example gradients follow from what a layer saw. One file a kind of layer."""

from noisette.gradients.rules import attention, convolution, embedding, linear, lora, norms, recurrent
from noisette.gradients.rules.base import Rule, Use, find

__all__ = ["Rule", "Use", "attention", "convolution", "embedding", "find", "linear", "lora", "norms", "recurrent"]
