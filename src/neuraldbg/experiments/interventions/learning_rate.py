"""Changes of the learning rate and its schedule."""

from __future__ import annotations

from neuraldbg.experiments.interventions import SETTING, intervention

_UNLESS = "the script never takes an optimizer step"

for _factor, _cause in ((0.1, "lr_too_high"), (0.01, "lr_too_high"),
                        (10.0, "lr_too_low"), (100.0, "lr_too_low"),
                        (1000.0, "lr_too_low"), (10000.0, "lr_too_low")):  # fmt: skip
    intervention(
        f"lr_x{_factor:g}",
        f"every learning rate multiplied by {_factor:g}",
        causes=_cause,
        unless=_UNLESS,
        side_effects="weight decay that is coupled to the rate changes in proportion",
        size=SETTING,
    )

intervention(
    "lr_hold_peak",
    "the learning rate held at its highest value",
    causes="lr_schedule",
    unless="the recorded rate never changes",
    side_effects="a warm-up that the schedule contains is skipped as well",
    size=SETTING,
)
intervention(
    "lr_hold_first",
    "the learning rate held at its first value",
    causes="lr_schedule",
    unless="the recorded rate never changes",
    side_effects="a later decay is dropped as well",
    size=SETTING,
)
intervention(
    "lr_warmup",
    "a linear warm-up over the first tenth of the run",
    causes="lr_schedule",
    unless=_UNLESS,
    side_effects="the mean rate over the run is lower",
    size=SETTING,
)
