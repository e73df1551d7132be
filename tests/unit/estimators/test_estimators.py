"""Estimators: scikit-learn's own checks, budgets that hold, bounds that must be given, one ledger for a pipeline."""

from __future__ import annotations

import importlib.util
import pickle
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_diabetes
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import check_estimator, estimator_checks_generator

from noisette import Ledger, guarantee, read_ledger
from noisette.app.datasets.sources.breast_cancer import BOUNDS
from noisette.errors import InvalidInput
from noisette.estimators import PrivateLinearRegression, PrivateLogisticRegression, PrivateStandardScaler
from noisette.estimators.base import Scale
from noisette.noise import Gaussian, Laplace
from tests.support.helpers import refused

QUICK = (
    "check_estimators_dtypes",
    "check_fit_idempotent",
    "check_get_params_invariance",
    "check_n_features_in",
    "check_no_attributes_set_in_init",
    "check_set_params",
)
EXAMPLE = Path(__file__).parents[3] / "examples" / "tabular_pipeline.py"
KINDS = (PrivateLogisticRegression, PrivateLinearRegression, PrivateStandardScaler)
USES = dict(zip(KINDS, ("predict", "predict", "transform"), strict=True))


def made(kind: Any, **options: Any) -> Any:
    targets = {"target_bounds": (-5.0, 5.0)} if kind is PrivateLinearRegression else {}
    steps = {} if kind is PrivateStandardScaler else {"steps": 10}
    return kind(**({"bounds": (-5.0, 5.0), "random_state": 0} | steps | targets | options))


def rows(count: int = 60, columns: int = 3) -> tuple[Any, Any]:
    x = np.random.default_rng(0).uniform(-5, 5, size=(count, columns))
    return x, (x[:, 0] > 0).astype(int)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")  # of arrays that are not numpy's
@pytest.mark.parametrize("kind", KINDS)
def test_scikit_learns_own_checks_in_full(kind: Any) -> None:
    """With bounds and a seed, none is expected to fail. Without bounds whatever fits is refused: see the guide."""
    found = check_estimator(made(kind, steps=40) if kind is not PrivateStandardScaler else made(kind), on_fail=None)
    assert [one["check_name"] for one in found if one["status"] == "failed"] == []
    assert sum(one["status"] == "passed" for one in found) > 40


@pytest.mark.parametrize("kind", KINDS)
def test_scikit_learns_own_checks(kind: Any) -> None:
    """Those that cost least: the others take half a minute."""
    checks = [check for _, check in estimator_checks_generator(made(kind)) if check.func.__name__ in QUICK]
    assert len(checks) == len(QUICK)
    for check in checks:
        check(made(kind))


@pytest.mark.parametrize("kind", KINDS)
def test_a_fit_spends_what_it_says(kind: Any, tmp_path: Path) -> None:
    x, y = rows()
    path = tmp_path / "people.jsonl"
    model = made(kind, epsilon=2.0, ledger=path, people="demo").fit(x, y)
    assert 1.99 < model.epsilon_ <= 2.0
    assert model.epsilon_ == guarantee(model.mechanism_, 1e-5).epsilon
    assert model.guarantee_.flags == ("reproducible",)
    book = read_ledger(path)
    assert book.mechanisms() == (model.mechanism_,)
    assert book.guarantee(1e-5).epsilon == model.epsilon_
    assert book.flags == ("reproducible",)


@pytest.mark.parametrize("kind", KINDS)
def test_a_second_fit_is_a_fit_and_is_paid_again(kind: Any, tmp_path: Path) -> None:
    """The mechanism is the same, so a run that took the people's ledger for its own would take no step."""
    x, y = rows()
    model = made(kind, ledger=tmp_path / "people.jsonl", people="demo")
    first, second = clone(model).fit(x, y), clone(model).fit(x, y)
    paid = read_ledger(tmp_path / "people.jsonl").spent(first.mechanism_)
    assert paid == 2 * first.mechanism_.steps
    name = "mean_" if kind is PrivateStandardScaler else "coef_"
    assert np.array_equal(getattr(first, name), getattr(second, name)), "of one seed"
    assert np.any(getattr(first, name) != 0)


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_released_that_is_not_paid_for(kind: Any, tmp_path: Path) -> None:
    x, y = rows()
    path = tmp_path / "people.jsonl"
    with Ledger(path, data="demo"), refused(match="in use"):
        made(kind, ledger=path).fit(x, y)
    assert read_ledger(path).mechanisms() == ()
    with refused(match="there is no ledger"):
        made(kind, ledger=tmp_path / "other.jsonl").fit(x, y)
    with refused(match="belongs to the people"):
        made(kind, ledger=path, people="others").fit(x, y)


@pytest.mark.parametrize("kind", KINDS)
def test_without_a_seed_no_two_are_alike(kind: Any) -> None:
    x, y = rows()
    first, second = (made(kind, random_state=None).fit(x, y) for _ in range(2))
    name = "mean_" if kind is PrivateStandardScaler else "coef_"
    assert not np.array_equal(getattr(first, name), getattr(second, name))
    assert first.guarantee_.flags == ()


@pytest.mark.parametrize("kind", KINDS)
def test_what_lies_outside_the_bounds_is_cut_off(kind: Any) -> None:
    """So a row moves no more than the mechanism accounts for: 1e9 is as good as the bound."""
    x, y = rows()
    far, near = x.copy(), x.copy()
    far[0], near[0] = 1e9, 5.0
    name = "mean_" if kind is PrivateStandardScaler else "coef_"
    found = [getattr(made(kind).fit(one, y), name) for one in (far, near)]
    assert np.allclose(*found, rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_what_does_not_fit_is_refused(kind: Any) -> None:
    x, y = rows()
    for options, text in (
        ({"bounds": None}, "bounds are missing"),
        ({"bounds": (5.0, -5.0)}, "not a range"),
        ({"bounds": (0.0, np.inf)}, "not a range"),
        ({"bounds": ([0.0, 0.0], 1.0)}, "do not fit 3 columns"),
        ({"bounds": 5.0}, "do not fit"),
        ({"random_state": 0.5}, "random_state"),
        ({"random_state": np.random.RandomState(0)}, "random_state"),
        ({"epsilon": 0.0}, "epsilon"),
        ({"delta": 0.1}, "delta"),
    ):
        with refused(match=text):
            made(kind, **options).fit(x, y)
    if kind is PrivateLinearRegression:
        with refused(match="target_bounds are missing"):
            made(kind, target_bounds=None).fit(x, y)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_no_number_is_refused_without_telling_it(kind: Any) -> None:
    x, y = rows()
    x = x.astype(object)
    secret = "Alice Smith HIV+"
    text, flat, dates = x.copy(), np.full(60, 12345.5), pd.DataFrame(x.astype(float), columns=list("abc"))
    text[3, 1] = secret
    dates["when"] = pd.Timestamp("1977-07-07")
    for wrong in (text, text.tolist(), text.astype(bytes), pd.DataFrame(text), flat, flat * 1j, 12345.5, dates):
        with refused(InvalidInput) as error:
            made(kind).fit(wrong, y)
        assert not re.search("Alice|12345|1977", str(error.value))
        assert error.value.__suppress_context__ or error.value.__context__ is None
    fitted = made(kind).fit(*rows())
    with refused(InvalidInput, match="not a number"):
        (fitted.transform if kind is PrivateStandardScaler else fitted.predict)(text)


_DAYS = pd.Series(pd.date_range("1977-07-07", periods=60))
DATES: dict[str, Any] = {
    "days": _DAYS.to_numpy().astype("datetime64[D]")[:, None],
    "nanoseconds": _DAYS.to_numpy()[:, None],
    "durations": (_DAYS - _DAYS[0]).to_numpy()[:, None],
    "objects": _DAYS.dt.date.to_numpy()[:, None],
    "a list": [[day] for day in _DAYS],
    "a column": _DAYS.to_frame("when"),
    "a column with a time zone": _DAYS.dt.tz_localize("UTC").to_frame("when"),
    "a column of periods": _DAYS.dt.to_period("D").to_frame("when"),
    "beside numbers": pd.DataFrame({"when": _DAYS, "x": 1.0}),
}


@pytest.mark.filterwarnings("ignore:X has feature names")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", DATES)
def test_dates_are_refused_as_dates(name: str, kind: Any) -> None:
    """Whatever they come in; scikit-learn takes some of them for numbers of nanoseconds."""
    dates, (x, y) = DATES[name], rows()
    fitted = made(kind).fit(x[:, :1], y)
    for use in (lambda: made(kind).fit(dates, y), lambda: getattr(fitted, USES[kind])(dates)):
        with refused(InvalidInput, match="holds dates or times") as error:
            use()
        assert "1977" not in str(error.value)


def test_dates_are_no_targets_and_no_bounds() -> None:
    x, y = rows()
    for days in (_DAYS, _DAYS.to_numpy(), _DAYS.dt.date.to_numpy()):
        with refused(InvalidInput, match="holds dates or times"):
            made(PrivateLinearRegression).fit(x, days)
    for bounds in ((_DAYS[0], _DAYS[1]), (np.datetime64("1977-07-07"), np.datetime64("1977-08-08"))):
        with refused(InvalidInput, match="bounds"):
            made(PrivateLogisticRegression, bounds=bounds).fit(x, y)


def test_targets_that_are_no_numbers_are_not_told() -> None:
    x, y = rows()
    mixed = y.astype(object)
    mixed[3] = "Alice Smith HIV+"
    for kind, match in ((PrivateLinearRegression, "not a number"), (PrivateLogisticRegression, "Unknown label type")):
        with pytest.raises(ValueError, match=match) as error:
            made(kind).fit(x, mixed)
        assert "Alice" not in str(error.value)


def test_one_class_is_refused() -> None:
    with refused(match="one class only"):
        made(PrivateLogisticRegression).fit(rows()[0], np.zeros(60))


def test_a_fit_that_is_refused_leaves_the_last_one_as_it_was(tmp_path: Path) -> None:
    x, y = rows()
    model = made(PrivateLogisticRegression, ledger=tmp_path / "people.jsonl", people="demo").fit(x, y)
    before = model.predict(x)
    with refused(match="one class only"):
        model.fit(x, np.full(60, 7))
    with Ledger(tmp_path / "people.jsonl"), refused(match="in use"):
        model.fit(x, np.arange(60) % 3)
    assert model.classes_.tolist() == [0, 1]
    assert np.array_equal(model.predict(x), before)


@pytest.mark.parametrize(("columns", "law"), [(1, Laplace), (40, Gaussian)])
def test_the_scaler_takes_the_noise_that_suits(columns: int, law: type) -> None:
    scaler = made(PrivateStandardScaler).fit(rows(200, columns)[0])
    assert isinstance(scaler.mechanism_.noise, law)
    assert scaler.mechanism_.encoder.dim == 2 * columns, "a mean and a mean square of each"


def test_the_scaler_finds_means_and_spreads() -> None:
    """With next to no noise they are those of numpy."""
    x = np.random.default_rng(1).normal([1.0, -2.0], [0.5, 1.5], size=(20_000, 2))
    scaler = made(PrivateStandardScaler, epsilon=40.0).fit(x)
    inside = np.clip(x, -5, 5)
    assert np.allclose(scaler.mean_, inside.mean(axis=0), atol=2e-3)
    assert np.allclose(scaler.scale_, inside.std(axis=0), atol=5e-3)
    low, high = scaler.transformed_bounds_
    out = scaler.transform(np.array([[-99.0, 99.0]]))
    assert np.allclose(out, [[low[0], high[1]]])


def test_models_are_as_good_as_budgets_allow() -> None:
    """Against a plain fit of scikit-learn, at a budget that hides next to nothing."""
    x, y = load_diabetes(return_X_y=True)
    many_x, many_y = np.tile(x, (20, 1)), np.tile(y, 20)
    ours = PrivateLinearRegression(30.0, bounds=(-0.2, 0.2), target_bounds=(0, 400), random_state=0)
    plain = LinearRegression().fit(x, y).score(x, y)
    assert ours.fit(many_x, many_y).score(x, y) > plain - 0.05
    bunch = load_breast_cancer()
    low, high = zip(*(BOUNDS[name] for name in bunch.feature_names), strict=True)
    model = PrivateLogisticRegression(1.0, bounds=(low, high), random_state=0).fit(bunch.data, bunch.target)
    assert model.score(bunch.data, bunch.target) > 0.9
    sums = model.predict_proba(bunch.data).sum(axis=1)
    assert np.allclose(sums, 1)
    assert np.array_equal(model.predict_proba(bunch.data).argmax(axis=1), model.predict(bunch.data))


def test_one_ledger_knows_what_a_pipeline_cost(tmp_path: Path) -> None:
    x, y = rows(200)
    path = tmp_path / "people.jsonl"
    both = {"ledger": path, "people": "demo", "random_state": 0}
    scaler = PrivateStandardScaler(0.5, bounds=(-5, 5), **both)
    pipeline = make_pipeline(scaler, PrivateLogisticRegression(0.5, bounds=(-3, 3), **both)).fit(x, y)
    parts = [step.mechanism_ for step in pipeline]
    total = read_ledger(path).guarantee(1e-5)
    assert total.epsilon == guarantee(tuple(parts), 1e-5).epsilon
    assert max(step.epsilon_ for step in pipeline) < total.epsilon < sum(step.epsilon_ for step in pipeline)
    assert pickle.loads(pickle.dumps(pipeline)).predict(x).tolist() == pipeline.predict(x).tolist()


def test_the_example_runs() -> None:
    spec = importlib.util.spec_from_file_location("pipeline", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    score, epsilon = example.main()
    assert score > 0.85
    assert epsilon == pytest.approx(1.146, abs=1e-3)


def test_a_search_pays_for_every_fit(tmp_path: Path) -> None:
    x, y = rows()
    model = made(PrivateLogisticRegression, ledger=tmp_path / "people.jsonl", people="demo")
    GridSearchCV(model, {"steps": [2, 3]}, cv=2).fit(x, y)
    paid = read_ledger(tmp_path / "people.jsonl").mechanisms()
    assert sum(one.steps for one in paid) in (2 * 2 + 2 * 3 + 2, 2 * 2 + 2 * 3 + 3), "two folds, then the winner"


def test_bounds_go_with_columns() -> None:
    scale = Scale(([0, -1], [10, 1]), "bounds", columns=2)
    assert scale.rows(np.array([[10.0, 0.5], [-3.0, 7.0]])).tolist() == [[1.0, 0.5], [-1.0, 1.0]]
