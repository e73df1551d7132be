"""``fashion-mnist``: clothes, 70,000 images of 28x28."""

from __future__ import annotations

from noisette.app.datasets.sources.mnist import Mnist, like_mnist

__all__ = ["FashionMnist"]


class FashionMnist(Mnist):
    """60,000 training and 10,000 test images (N, 1, 28, 28) of ten kinds of clothes, in MNIST's form."""

    name = "fashion-mnist"
    folder = "fashion-mnist"
    address = "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/"
    files = like_mnist(
        "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
        "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
        "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
        "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
    )
