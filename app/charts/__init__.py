"""The charts of the pages, in Altair. They draw what they are given: no arithmetic beyond scales and places.

Every function takes `mode` ("light" or "dark") and `words`, the texts in the reader's language, and returns a chart
that is already configured: show it with `st.altair_chart(chart, theme=None, width="stretch", alt=...)`.
"""

from app.charts.advisor import prediction_chart
from app.charts.caching import caching_chart
from app.charts.capacity import capacity_chart
from app.charts.common import Stack
from app.charts.curves import change_strip, curve_card, guess_chart
from app.charts.factorial import interaction_chart
from app.charts.jitter import jitter_chart
from app.charts.kv_trace import block_timeline, kinds_chart
from app.charts.levers import levers_chart
from app.charts.live import progress_chart, rate_chart, spark
from app.charts.memory import block_map, ledger_chart
from app.charts.operators import operators_chart
from app.charts.planner import plan_chart
from app.charts.quality import quality_chart
from app.charts.roofline import crossover_chart, roofline_chart, time_share_chart, time_unit
from app.charts.savings import savings_chart
from app.charts.speculation import batch_chart, break_even_chart
from app.charts.surface import surface_chart
from app.charts.sweep import load_chart, trade_chart
from app.charts.telemetry import telemetry_chart
from app.charts.timeline import timeline_chart
from app.charts.waterfall import waterfall_chart

_KEYS = """
account activations arm bits block block_cached block_filling block_free block_full block_reserved blocks_per_cell
boundary by_arrival cached_cell free_cell held_cell running_cell kind_cached kind_external kind_free kind_held
kind_internal kind_reserved_ahead kind_reserved_unused kind_used part_decode_s part_overhead_s part_prefill_s
part_queue_s part_stalled_s part_transfer_s part_unexplained_s
whole attained batch bound capacity cell_fits cell_never cell_with
concurrency crossover_at how intensity kind_attention kind_linear kind_other kv_cache left lever month_cost none_fit
operator over precision ridge seq_len state_account time_share usable verdict change computed decode duration finished
first_n format from_s held interval_95 kv_free kv_reserved kv_used label last_token measured memory noise_floor now
other owner pairs phase predicted prefill progress queue rate rate_unit repeat request result same simulated state
this_repeat time to_s tokens value weights your_guess
launches product
alpha speedup model_says form the_model needed_alpha chosen_form other_forms constructed
longest_gap from_start prompt_tokens
plan_mark front_mark replica_mark per_user per_card deployment plan_cost
load knee measured_points pressed_points pareto other_points
cache_hit cache_hit_ungated cache_wrong cache_wrong_ungated cache_threshold cache_rate
curve_name predicted_band measured_mark
saved
"""
WORD_KEYS: tuple[str, ...] = tuple(_KEYS.split())
"""Every key the charts look up in `words`; the docstring of each function names its own."""

__all__ = [
    "WORD_KEYS",
    "Stack",
    "batch_chart",
    "block_map",
    "block_timeline",
    "break_even_chart",
    "caching_chart",
    "capacity_chart",
    "change_strip",
    "crossover_chart",
    "curve_card",
    "guess_chart",
    "interaction_chart",
    "jitter_chart",
    "kinds_chart",
    "ledger_chart",
    "levers_chart",
    "load_chart",
    "operators_chart",
    "plan_chart",
    "prediction_chart",
    "progress_chart",
    "quality_chart",
    "rate_chart",
    "roofline_chart",
    "savings_chart",
    "spark",
    "surface_chart",
    "telemetry_chart",
    "time_share_chart",
    "time_unit",
    "timeline_chart",
    "trade_chart",
    "waterfall_chart",
]
