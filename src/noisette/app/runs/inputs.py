"""What the model of a recipe sees: the examples of a data set themselves, or fixed features of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from noisette import _io
from noisette._spec import parse
from noisette.app import datasets
from noisette.app.datasets import Dataset
from noisette.app.datasets._published_files import cache_folder
from noisette.app.features import FeatureMap, Features, Progress, fit_cached, transform_cached
from noisette.app.recipes.recipe import Recipe
from noisette.app.runs.holdout import split

__all__ = ["ModelInputs", "load_feature_map"]


@dataclass(frozen=True, eq=False)
class ModelInputs:
    """A data set as the model sees it, the `shape` of one example before that, and the map that was made of images.

    `held` has the training examples that the recipe holds out, which are as private as the others.
    """

    data: Dataset
    shape: tuple[int, ...]
    fixed: FeatureMap | None = None
    held: Dataset | None = None

    @classmethod
    def of(
        cls, recipe: Recipe, root: str | Path | None = None, kept: Path | None = None, progress: Progress | None = None
    ) -> ModelInputs:
        """The data set of `recipe`, from files below `root`; features come from the cache where it has them.

        A run keeps the map itself, in the folder `kept`, so that it is resumed and used with the very same one.

        >>> ModelInputs.of(Recipe.load("digits")).data
        Dataset(name='digits', train=1437, test=360, shape=(1, 8, 8), classes=10)
        """
        data = datasets.load(recipe.data, root, recipe.unit, recipe.target_bounds)
        if not recipe.features:
            return cls(data, data.shape)._parted(recipe)
        cache = cache_folder()
        if kept is None:
            fixed = fit_cached(parse(recipe.features, Features), data.shape, cache, progress)
        else:
            fixed = load_feature_map(recipe, data.shape, kept)
        train = transform_cached(fixed, data.train_inputs, cache, progress)
        test = transform_cached(fixed, data.test_inputs, cache, progress) if len(data.test_inputs) else train[:0]
        return cls(replace(data, train_inputs=train, test_inputs=test), data.shape, fixed)._parted(recipe)

    def _parted(self, recipe: Recipe) -> ModelInputs:
        if not recipe.held_out:
            return self
        data, held = split(self.data, recipe.held_out)
        return replace(self, data=data, held=held)

    def save(self, folder: Path) -> None:
        """Keep the map with the run."""
        if self.fixed is not None:
            _io.save(folder / "features.pt", self.fixed.state_dict())


def load_feature_map(recipe: Recipe, shape: tuple[int, ...], folder: Path) -> FeatureMap:
    """The map from images of `shape` that the run in `folder` has kept."""
    path = folder / "features.pt"
    with _io.naming(path):
        return parse(recipe.features, Features).from_state(shape, _io.load(path))
