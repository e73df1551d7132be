"""What the model of a run sees: the examples themselves, or fixed features of them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from noisette import files
from noisette.data import Dataset
from noisette.data.files import cache_folder
from noisette.features import Features, Fixed, Progress, cached, learnt
from noisette.recipes.recipe import Recipe
from noisette.spec import parse

__all__ = ["Inputs", "map_of"]


@dataclass(frozen=True, eq=False)
class Inputs:
    """Training inputs (N, ...), which are private, test inputs (M, ...), and the map that made them from images."""

    train: Tensor
    test: Tensor
    fixed: Fixed | None

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one example, as the model sees it."""
        return tuple(self.train.shape[1:])

    @classmethod
    def of(cls, recipe: Recipe, data: Dataset, folder: Path, progress: Progress | None = None) -> Inputs:
        """Inputs of a run in `folder`; features come from the cache where it has them.

        A run keeps the map itself, so that it is resumed and used with the very same one.
        """
        if not recipe.features:
            return cls(data.train_inputs, data.test_inputs, None)
        cache = cache_folder()
        if (folder / "features.pt").exists():
            fixed = map_of(recipe, data.shape, folder)
        else:
            fixed = learnt(parse(recipe.features, Features), data.shape, cache, progress)
        train = cached(fixed, data.train_inputs, cache, progress)
        test = cached(fixed, data.test_inputs, cache, progress) if len(data.test_inputs) else train[:0]
        return cls(train, test, fixed)

    def save(self, folder: Path) -> None:
        """Keep the map with the run."""
        if self.fixed is not None:
            files.save(folder / "features.pt", self.fixed.state_dict())


def map_of(recipe: Recipe, shape: tuple[int, ...], folder: Path) -> Fixed:
    """The map from images of `shape` that the run in `folder` has kept."""
    path = folder / "features.pt"
    with files.naming(path):
        return parse(recipe.features, Features).again(shape, files.load(path))
