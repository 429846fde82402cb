"""Percentiles, Holm's correction, the noise floor and the four verdicts."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from experiments.statistics import (
    ALPHA,
    AUTO_ALPHAS,
    AUTO_LOOKS,
    WIDEST_MARGIN,
    CurveSamples,
    alpha_at,
    decided,
    holm,
    judge,
    noise_floor,
    percentile,
)


def curve(baseline, candidate, *, better="lower", name="ttft_s", **options):
    return CurveSamples(name, "p95", better, baseline, candidate, **options)


@pytest.mark.parametrize("n", [1, 2, 3, 20])
def test_percentiles_stay_within_the_values_and_rise_with_q(n):
    rng = random.Random(n)
    values = [rng.lognormvariate(0, 1) for _ in range(n)]
    got = [percentile(values, q) for q in range(101)]
    assert got[0] == min(values)
    assert got[-1] == max(values)
    assert got == sorted(got)


def test_percentile_interpolates_linearly_as_numpy_does():
    values = [0.3, 0.1, 0.4, 0.1, 0.5, 0.9, 0.2]
    for q in (0, 12.5, 50, 95, 99, 100):
        assert percentile(values, q) == pytest.approx(float(np.percentile(values, q)), rel=1e-12)


def test_percentile_of_equal_values_is_that_value_and_of_none_is_none():
    assert percentile([0.1 + 0.2] * 3, 95) == 0.1 + 0.2
    assert percentile([], 95) is None
    with pytest.raises(ValueError, match=r"0\.\.100"):
        percentile([1.0], 101)


def test_holm_matches_a_worked_example_and_keeps_the_order():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []


def test_t_interval_matches_scipy_on_paired_log_ratios():
    from scipy import stats

    baseline, candidate = [1.0, 1.1, 0.95, 1.05, 1.02], [0.7, 0.74, 0.69, 0.71, 0.75]
    logs = np.log(np.array(candidate) / np.array(baseline))
    (verdict,) = judge([curve(baseline, candidate)])
    expected = stats.t.interval(0.95, 4, loc=logs.mean(), scale=stats.sem(logs))
    assert verdict.ci95 == pytest.approx([100 * math.expm1(x) for x in expected])
    assert verdict.p_adjusted == pytest.approx(stats.ttest_1samp(logs, 0).pvalue)
    assert verdict.verdict == "better"
    assert verdict.candidate / verdict.baseline - 1 == pytest.approx(verdict.change_pct / 100)


def test_bootstrap_takes_over_at_ten_pairs_and_is_reproducible():
    rng = np.random.default_rng(3)
    for n, method in ((9, "Student t"), (10, "bootstrap"), (20, "bootstrap")):
        candidate = list(np.exp(rng.normal(0.2, 0.05, n)))
        first, second = judge([curve([1.0] * n, candidate)]), judge([curve([1.0] * n, candidate)])
        assert first == second
        assert first[0].method == method
        assert first[0].verdict == "worse"
        assert first[0].ci95[0] < first[0].change_pct < first[0].ci95[1]


def test_direction_depends_on_which_way_is_better():
    up = ([100.0, 101, 99, 100, 100.5], [150.0, 152, 149, 151, 150])
    assert judge([curve(*up, better="higher")])[0].verdict == "better"
    assert judge([curve(*up, better="lower")])[0].verdict == "worse"
    assert judge([curve(up[1], up[0], better="lower")])[0].verdict == "better"


def test_a_significant_change_within_the_noise_floor_is_neither_better_nor_worse():
    (small,) = judge([curve([1.0, 1.0001, 1.0, 0.9999, 1.0], [1.005, 1.0049, 1.0051, 1.005, 1.005])])
    assert small.p_adjusted < 0.001
    assert small.noise_floor_pct == pytest.approx(1.0)
    assert small.verdict == "no difference"
    (noisy,) = judge([curve([1.0] * 5, [1.08, 1.081, 1.079, 1.08, 1.08], noise_floor=0.10)])
    assert noisy.verdict == "no difference"


def test_a_change_of_a_third_on_a_loud_machine_is_not_called_no_difference():
    """Two pairs whose arms doubled between the repeats: the floor is above 100 %, and the change to 0.34 within it."""
    (loud,) = judge([curve([1.0, 2.4], [0.34, 0.6])])
    assert loud.noise_floor_pct > 100
    assert loud.verdict == "inconclusive"
    assert "too busy" in loud.reason
    tight = [1.0, 1.001, 0.999, 1.0, 1.0]
    assert judge([curve([1.0] * 5, tight, noise_floor=2.0)])[0].verdict == "no difference"
    just_inside, just_outside = 1 + 0.9 * WIDEST_MARGIN, 1 + 1.1 * WIDEST_MARGIN
    for middle, word in ((just_inside, "no difference"), (just_outside, "inconclusive")):
        wide = [middle * value for value in tight]
        assert judge([curve([1.0] * 5, wide, noise_floor=0.6)])[0].verdict == word


def test_a_halving_is_beyond_a_floor_that_a_doubling_is_beyond():
    up, down = [2.0, 2.01, 1.99, 2.0, 2.0], [0.5, 0.501, 0.499, 0.5, 0.5]
    for candidate in (up, down):
        assert judge([curve([1.0] * 5, candidate, noise_floor=0.6)])[0].verdict in ("better", "worse")


def test_no_difference_needs_the_whole_interval_inside_five_percent():
    tight, wide = [1.0, 1.01, 0.99, 1.0, 1.005], [1.0, 1.25, 0.8, 1.02, 0.98]
    assert judge([curve([1.0, 1.0, 1.0, 1.0, 1.0], tight, noise_floor=0.01)])[0].verdict == "no difference"
    (verdict,) = judge([curve([1.0] * 5, wide, noise_floor=0.01)])
    assert verdict.verdict == "inconclusive"
    assert verdict.repeats_needed is not None
    assert verdict.repeats_needed > 20


def test_repeats_needed_names_enough_repeats_to_decide():
    candidate = [1.14, 0.99, 1.12, 0.97, 1.10]
    (verdict,) = judge([curve([1.0] * 5, candidate, noise_floor=0.01)])
    assert verdict.verdict == "inconclusive"
    assert verdict.repeats_needed == 9
    enough = candidate * 3  # the same mean, median and nearly the same spread at 15 pairs
    assert judge([curve([1.0] * len(enough), enough, noise_floor=0.01)])[0].verdict != "inconclusive"


def test_holm_over_the_curves_holds_back_what_one_curve_alone_would_call():
    rng = np.random.default_rng(5)
    unrelated = [curve([1.0] * 5, list(np.exp(rng.normal(0, 0.1, 5))), name=f"c{i}") for i in range(4)]
    borderline = curve([1.0] * 5, [1.02, 1.12, 1.10, 1.05, 1.14], name="borderline", noise_floor=0.01)
    assert judge([borderline])[0].verdict == "worse"
    together = judge([borderline, *unrelated])[0]
    assert together.p_adjusted == pytest.approx(5 * judge([borderline])[0].p_adjusted)
    assert together.verdict == "inconclusive"


def test_zero_variance_equal_arms_are_no_difference_and_a_constant_change_is_decided():
    (same,) = judge([curve([0.5] * 4, [0.5] * 4, better="higher", name="quality")])
    assert (same.verdict, same.ci95, same.change_pct) == ("no difference", (0.0, 0.0), 0.0)
    (twice,) = judge([curve([1.0] * 3, [2.0] * 3)])
    assert twice.verdict == "worse"
    assert twice.ci95 == pytest.approx((100.0, 100.0))
    (many,) = judge([curve([0.5] * 16, [0.5] * 16)])
    assert many.verdict == "no difference"


def test_missing_and_unusable_values_leave_their_pair_out():
    (verdict,) = judge([curve([1.0, None, 1.0, 1.0, 0.0], [2.0, 2.0, None, 2.1, 2.0])])
    assert verdict.pairs == 2
    assert verdict.pairs_left_out == 3
    (none,) = judge([curve([None] * 5, [None] * 5)])
    assert none.verdict == "inconclusive"
    assert (none.baseline, none.change_pct, none.ci95, none.noise_floor_pct) == (None, None, None, None)


def test_one_pair_shows_its_change_but_decides_nothing():
    (verdict,) = judge([curve([1.0], [3.0])])
    assert verdict.verdict == "inconclusive"
    assert verdict.change_pct == pytest.approx(200)
    assert verdict.ci95 is None
    assert judge([]) == []


def test_wrong_use_is_refused():
    with pytest.raises(ValueError, match="samples"):
        judge([curve([1.0], [1.0, 2.0])])
    with pytest.raises(ValueError, match="better"):
        judge([curve([1.0], [1.0], better="up")])


def test_noise_floor_is_the_median_change_between_repeats_of_one_arm():
    assert noise_floor([[1.0, 1.1, 1.0], [5.0, 5.5, 5.0]]) == pytest.approx(0.1)
    assert noise_floor([[1.0, 1.0, 1.0], [2.0, 2.0, 2.0]]) == 0.01
    assert noise_floor([[1.0], [2.0]]) is None
    assert noise_floor([[1.0, None, 1.2], [2.0, 2.2, None]]) == pytest.approx(0.1)


@pytest.mark.parametrize(("pairs", "curves"), [(2, 1), (5, 1), (5, 5), (9, 5)])
def test_the_smallest_detectable_change_is_found_eight_times_in_ten(pairs, curves):
    """A change of that size is planted, with the floor out of the way; power is that of one curve of a family."""
    from scipy.special import stdtr

    rng = np.random.default_rng(pairs)
    spread = 0.02
    noise = rng.normal(0, spread, 400)[:pairs]
    noise = spread * (noise - noise.mean()) / noise.std(ddof=1)
    others = [curve([1.0] * pairs, list(np.exp(rng.normal(0, 0.1, pairs))), name=f"c{i}") for i in range(curves - 1)]
    verdict = judge([curve([1.0] * pairs, list(np.exp(noise)), noise_floor=1e-6), *others])[0]
    draws = rng.normal(math.log1p(verdict.min_detectable_pct / 100), spread, (100_000, pairs))
    t = draws.mean(1) / (draws.std(1, ddof=1) / math.sqrt(pairs))
    assert np.mean(2 * stdtr(pairs - 1, -abs(t)) < ALPHA / curves) == pytest.approx(0.8, abs=0.01)


def test_a_change_must_pass_the_noise_floor_to_be_detectable():
    samples = ([1.0, 1.01, 0.99, 1.0, 1.005], [1.0, 1.0, 1.01, 0.99, 1.0])
    narrow, wide = (judge([curve(*samples, noise_floor=floor)])[0].min_detectable_pct for floor in (1e-6, 0.15))
    assert narrow < 15 < wide < 17
    assert judge([curve([1.0] * 4, [1.0] * 4)])[0].min_detectable_pct == pytest.approx(1.0)
    assert judge([curve([1.0], [2.0])])[0].min_detectable_pct is None


def _rejected(levels, effect=0.0, runs=200_000, seed=1):
    """Share of series of paired normal differences (sd 1) that a t test rejects at any look, and within 5 pairs."""
    from scipy.special import stdtrit

    series = np.random.default_rng(seed).standard_normal((AUTO_LOOKS[-1], runs)) + effect
    hits = []
    for look, level in zip(AUTO_LOOKS, levels, strict=True):
        seen = series[:look]
        t = seen.mean(0) / (seen.std(0, ddof=1) / math.sqrt(look))
        hits.append(abs(t) > stdtrit(look - 1, 1 - level / 2))
    return np.mean(np.any(hits, axis=0)), np.mean(np.any(hits[:2], axis=0))


def test_the_levels_of_the_looks_spend_no_more_than_alpha():
    """For one curve at the steps of Holm's correction over five: alpha / 5, and the easier ones after it."""
    for curves in (5, 3, 1):
        spent, _ = _rejected([level / curves for level in AUTO_ALPHAS])
        assert 0.8 * ALPHA / curves < spent <= ALPHA / curves


def test_spending_by_the_pairs_seen_finds_more_than_equal_parts():
    equal = [ALPHA / len(AUTO_LOOKS) / 5] * len(AUTO_LOOKS)
    spent = [level / 5 for level in AUTO_ALPHAS]
    assert _rejected(spent, 1.0, 40_000)[0] > _rejected(equal, 1.0, 40_000)[0] + 0.04
    assert _rejected(spent, 6.0, 40_000)[1] > 0.9


def test_a_look_has_its_own_alpha():
    assert [alpha_at(look) for look in AUTO_LOOKS] == list(AUTO_ALPHAS)
    assert (alpha_at(2), alpha_at(4), alpha_at(19)) == (AUTO_ALPHAS[0], AUTO_ALPHAS[0], AUTO_ALPHAS[3])


def test_verdict_becomes_the_keys_of_the_compare_json():
    data = judge([curve([1.0, 1.1], [1.0, 1.2])])[0].to_json(candidate_value="continuous")
    assert set(data) >= {
        "name", "candidate_value", "statistic", "better", "baseline", "candidate", "change_pct", "ci95",
        "noise_floor_pct", "verdict", "provenance",
    }  # fmt: skip
    assert isinstance(data["ci95"], list)


def _same_arms(rng: np.random.Generator, repeats: int) -> list[CurveSamples]:
    """Five curves of two equal arms, with a repeat's own disturbance shared by its curves as on a real machine."""
    curves = []
    shared = rng.normal(0, 0.03, (2, repeats))
    for i in range(5):
        noise = shared + rng.normal(0, 0.03, (2, repeats)) * (1 + rng.standard_exponential((2, repeats)))
        baseline, candidate = np.exp(noise)
        curves.append(curve(list(baseline), list(candidate), name=f"c{i}"))
    return curves


@pytest.mark.parametrize("repeats", [3, 5, 9, 10, 15])
def test_equal_arms_raise_a_false_alarm_in_at_most_one_comparison_in_twenty(repeats):
    rng = np.random.default_rng(repeats)
    runs = 400 if repeats < 10 else 150
    alarms = sum(any(v.verdict in ("better", "worse") for v in judge(_same_arms(rng, repeats))) for _ in range(runs))
    # 5 % plus three standard errors of the count.
    assert alarms <= ALPHA * runs + 3 * math.sqrt(ALPHA * (1 - ALPHA) * runs)


@pytest.mark.slow
def test_repeated_looks_of_an_automatic_comparison_do_not_raise_more_false_alarms():
    rng = np.random.default_rng(8)
    runs, alarms = 150, 0
    for _ in range(runs):
        full = _same_arms(rng, AUTO_LOOKS[-1])
        for look in AUTO_LOOKS:
            part = [curve(c.baseline[:look], c.candidate[:look], name=c.name) for c in full]
            verdicts = judge(part, alpha=alpha_at(look))
            if decided(verdicts) or look == AUTO_LOOKS[-1]:
                alarms += any(v.verdict in ("better", "worse") for v in verdicts)
                break
    assert alarms <= ALPHA * runs + 3 * math.sqrt(ALPHA * (1 - ALPHA) * runs)


def test_a_real_change_is_found_with_five_repeats_at_three_percent_noise():
    rng = np.random.default_rng(2)
    found = 0
    for _ in range(100):
        curves = _same_arms(rng, 5)
        changed = curve(curves[0].baseline, [1.5 * x for x in curves[0].candidate], name="changed")
        found += judge([changed, *curves[1:]])[0].verdict == "worse"
    assert found >= 95
