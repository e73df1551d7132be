"""`Features`: a fixed map from images to vectors or smaller images, made before any private picture is seen."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor, nn

from noisette._spec import Spec, real, whole
from noisette.app.features._parallel import Progress, run_parallel
from noisette.app.features.synthetic_images import PICTURES, draw
from noisette.errors import InvalidInput

__all__ = ["FeatureMap", "Features"]


class FeatureMap(nn.Module):
    """Raw features of an image, seen along the principal axes of made-up pictures, scaled, and brought to length one.

    `raw` maps images (N, C, H, W) to (N, D), or to maps (N, D, h, w), of which all `places` (h, w) are treated alike.
    `mean` (D,), `axes` (D, K) and `variances` (K,), those of made-up pictures along the axes, are all that is learnt.
    Every row of the result, (N, K) or (N, K, h, w), is a function of its own image alone.
    """

    mean: Tensor
    axes: Tensor
    variances: Tensor
    places: Tensor

    def __init__(
        self,
        raw: nn.Module,
        mean: Tensor,
        axes: Tensor,
        variances: Tensor,
        whitening: float,
        places: Sequence[int] = (),
    ) -> None:
        super().__init__()
        self.raw, self.whitening = raw, whitening
        self.register_buffer("mean", mean)
        self.register_buffer("axes", axes)
        self.register_buffer("variances", variances)
        self.register_buffer("places", torch.tensor(places, dtype=torch.int64))

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the features of one image: (K,) or (K, h, w)."""
        return (self.axes.shape[1], *self.places.tolist())

    def forward(self, images: Tensor) -> Tensor:
        """Features (N, K) or (N, K, h, w) of images (N, C, H, W)."""
        return self.scaled(self.seen(images))

    def seen(self, images: Tensor) -> Tensor:
        """What takes long: images (N, C, H, W) along the axes, at length one, (N, K) or (N, K, h, w)."""
        return self.along(self.raw(images))

    def along(self, raw: Tensor) -> Tensor:
        """Raw features (N, D) or (N, D, h, w) along the axes, at length one."""
        found = (raw.movedim(1, -1) - self.mean) @ self.axes
        return nn.functional.normalize(found.movedim(-1, 1), dim=1)

    def scaled(self, seen: Tensor) -> Tensor:
        """What is left to do: each axis by its variance to the power of -whitening / 2, and length one again."""
        scales = (self.variances / self.variances[0]) ** (-self.whitening / 2)
        return nn.functional.normalize((seen.movedim(1, -1) * scales).movedim(-1, 1), dim=1)


@dataclass(frozen=True)
class Features(Spec):
    """What all features share: `axes` principal axes of raw features of `count` made-up `pictures`.

    An axis along which made-up pictures vary by v is scaled by v**(-whitening / 2): 0 keeps all as they are, 1 makes
    all alike. Neither the axes nor their scales may come from private pictures, so nothing here takes any.

    With `maps` the axes are those of the channels at one place, and the result is an image of `axes` channels, for a
    convolutional network.
    """

    pictures: str = "leaves"
    axes: int = 1000
    whitening: float = 0.5
    count: int = 3000
    seed: int = 0
    maps: bool = False

    def __post_init__(self) -> None:
        if self.pictures not in PICTURES:
            raise InvalidInput(
                f"there are no made-up pictures {self.pictures!r}.", hint=f"choose one of {', '.join(PICTURES)}"
            )
        self._set(
            axes=whole("axes", self.axes, least=1),
            count=whole("count", self.count, least=2),
            seed=whole("seed", self.seed, least=0),
            whitening=real("whitening", self.whitening),
        )
        if not isinstance(self.maps, bool):
            raise InvalidInput(f"maps is {self.maps!r}.", hint="write True or False")
        if self.axes >= self.count:
            raise InvalidInput(
                f"{self.count} pictures do not have {self.axes} principal axes.", hint="give more pictures than axes"
            )

    @classmethod
    @abstractmethod
    def examples(cls) -> tuple[Self, ...]:
        """A few small ones for tests."""

    @abstractmethod
    def raw(self, shape: tuple[int, int, int]) -> nn.Module:
        """The module that maps images (N, *shape) to raw features (N, D), before it has learnt anything.

        With `maps` these are (N, D, h, w).
        """

    def prepare(self, raw: nn.Module, pictures: Tensor) -> None:
        """Let `raw` learn from made-up `pictures` (count, *shape) what it has to."""

    def fit(self, shape: tuple[int, ...], progress: Progress | None = None) -> FeatureMap:
        """The map for images of `shape` (C, H, W): everything in it comes from this spec alone.

        >>> from noisette.app.features import Scattering
        >>> Scattering(pictures="strokes", axes=20, count=30).fit((1, 16, 16))(torch.rand(2, 1, 16, 16)).shape
        torch.Size([2, 20])
        >>> small = Scattering(pictures="strokes", axes=20, count=30, maps=True)
        >>> small.fit((1, 16, 16))(torch.rand(2, 1, 16, 16)).shape
        torch.Size([2, 20, 4, 4])
        """
        size = _image(shape)
        raw, pictures = self.raw(size).eval(), draw(self.pictures, self.count, size, self.seed)
        with torch.no_grad():
            self.prepare(raw, pictures)
            seen = _mapped(raw, pictures, progress)
            rows = seen.movedim(1, -1).flatten(0, -2)  # of maps every place is one
            if rows.shape[1] < self.axes:
                raise InvalidInput(
                    f"{rows.shape[1]} raw features do not have {self.axes} axes.", hint="ask for fewer axes"
                )
            mean = rows.mean(dim=0)
            return FeatureMap(raw, mean, *principal(rows - mean, self.axes), self.whitening, seen.shape[2:]).eval()

    def empty(self, shape: tuple[int, ...]) -> FeatureMap:
        """The map for images of `shape` (C, H, W) before it has learnt anything: its tensors have their sizes only."""
        size = _image(shape)
        raw = self.raw(size).eval()
        with torch.no_grad():
            found = raw(torch.zeros(1, *size))
        width = found.shape[1]
        blanks = torch.zeros(width), torch.zeros(width, self.axes), torch.ones(self.axes)
        return FeatureMap(raw, *blanks, self.whitening, found.shape[2:]).eval()

    def from_state(self, shape: tuple[int, ...], state: dict[str, Tensor]) -> FeatureMap:
        """The map once more, from the tensors of one that `learn` had made."""
        fixed = self.empty(shape)
        try:
            fixed.load_state_dict(state)
        except (LookupError, TypeError, ValueError, AttributeError, RuntimeError):
            raise InvalidInput(
                "the tensors are not those of this map.", hint="restore the file from a backup, or start a new run"
            ) from None
        return fixed


def _image(shape: tuple[int, ...]) -> tuple[int, int, int]:
    if len(shape) != 3:
        raise InvalidInput(
            f"examples of shape {tuple(shape)} are not images.", hint="leave the features out of the recipe"
        )
    return int(shape[0]), int(shape[1]), int(shape[2])


def _mapped(module: nn.Module, images: Tensor, progress: Progress | None) -> Tensor:
    """What `module` makes of `images` (N, ...): (N, D) or (N, D, h, w)."""
    found, done = torch.empty(0), 0
    for part in run_parallel(module, images, progress):
        # one block of memory from the start: many small ones between large passing ones would keep all of it in use
        found = found if done else torch.empty(len(images), *part.shape[1:])
        found[done : done + len(part)] = part
        done += len(part)
    return found


def principal(rows: Tensor, axes: int) -> tuple[Tensor, Tensor]:
    """The first principal axes (D, axes) of centred `rows` (N, D), of length one, and the variances (axes,) along them.

    >>> principal(torch.tensor([[2.0, 0.0], [-2.0, 0.0], [0.0, 1.0], [0.0, -1.0]]), 2)[1]
    tensor([2.0000, 0.5000])
    """
    wide = rows.shape[1] > rows.shape[0]
    product = rows @ rows.T if wide else rows.T @ rows
    values, vectors = torch.linalg.eigh(product.double())
    values, vectors = values.flip(0)[:axes], vectors.flip(1)[:, :axes]
    values = values.clamp(min=float(values[0]) * 1e-7)  # rounding; below it there is nothing to see
    if wide:
        vectors = (rows.T.double() @ vectors) / values.sqrt()
    vectors = vectors * vectors.sum(dim=0).sign()  # an axis has no direction of its own: choose one
    return vectors.float().contiguous(), (values / len(rows)).float()
