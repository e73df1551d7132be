"""Small models that train well with differential privacy, and a way to build them by name."""

from noisette.app.models.build import build
from noisette.app.models.convolutional import cifar_cnn, digits_cnn, maps_cnn, mnist_cnn
from noisette.app.models.dense import linear, mlp

__all__ = ["build", "cifar_cnn", "digits_cnn", "linear", "maps_cnn", "mlp", "mnist_cnn"]
