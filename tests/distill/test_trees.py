"""Exported trees give what scikit-learn gives."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier

from distill.students.linear import LinearSettings, _trees
from distill.students.trees import forest_from_arrays, forest_from_sklearn, mean_forest


def fitted(seed: int = 0) -> tuple[HistGradientBoostingClassifier, np.ndarray]:
    generator = np.random.default_rng(seed)
    x = generator.normal(size=(3000, 7))
    x[generator.uniform(size=x.shape) < 0.1] = np.nan
    y = (np.nan_to_num(x[:, 0] * x[:, 1]) + np.nan_to_num(x[:, 2]) > 0).astype(int)
    return HistGradientBoostingClassifier(max_iter=40, random_state=seed).fit(x, y), x


def test_a_forest_equals_the_model_it_came_from() -> None:
    model, x = fitted()
    forest = forest_from_arrays(forest_from_sklearn(model).arrays())
    assert np.abs(forest.log_odds(x) - model.decision_function(x)).max() < 1e-9


def test_a_mean_forest_is_the_mean() -> None:
    (one, x), (two, _) = fitted(0), fitted(1)
    both = mean_forest([forest_from_sklearn(one), forest_from_sklearn(two)])
    expected = (one.decision_function(x) + two.decision_function(x)) / 2
    assert np.abs(both.log_odds(x) - expected).max() < 1e-9


def test_arrays_that_are_no_trees_are_refused() -> None:
    arrays = forest_from_sklearn(fitted()[0]).arrays()
    with pytest.raises(ValueError, match="different lengths"):
        forest_from_arrays({**arrays, "value": arrays["value"][:-1]})
    with pytest.raises(ValueError, match="point outside"):
        forest_from_arrays({**arrays, "left": arrays["left"] + 10**6})
    with pytest.raises(KeyError):
        forest_from_arrays({name: a for name, a in arrays.items() if name != "roots"})


def test_weights_of_one_give_the_trees_of_no_weights() -> None:
    """The linear student leaves such weights out, because scikit-learn takes long to bin with them."""
    generator = np.random.default_rng(0)
    x = np.round(generator.normal(size=(2000, 5)), 2)
    y = (x[:, 0] * x[:, 1] > 0).astype(int)
    one, none = (
        forest_from_sklearn(HistGradientBoostingClassifier(max_iter=10, max_features=0.3, random_state=0).fit(x, y, weights))
        for weights in (np.ones(2000), None)
    )
    assert len(np.unique(x[:, 0])) > 255
    assert all(np.array_equal(array, none.arrays()[name]) for name, array in one.arrays().items())


def test_weights_of_one_are_not_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[object] = []
    fit = HistGradientBoostingClassifier.fit

    def watched(model: HistGradientBoostingClassifier, x: np.ndarray, y: np.ndarray, sample_weight: object = None) -> object:
        seen.append(sample_weight)
        return fit(model, x, y, sample_weight=sample_weight)

    monkeypatch.setattr(HistGradientBoostingClassifier, "fit", watched)
    x, y = np.random.default_rng(0).normal(size=(300, 3)), (np.arange(300) % 2).astype(np.float64)
    settings = LinearSettings(forests=1, trees=2)
    _trees(x, y, np.ones(300), 0, settings)
    _trees(x, 0.9 * y, np.ones(300), 0, settings)
    assert seen[0] is None
    assert seen[1] is not None
