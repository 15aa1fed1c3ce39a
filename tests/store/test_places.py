"""Where each channel's numbers lie in the frames of a stream."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from neuraldbg.core.facts import Channel, Kind
from neuraldbg.store.places import Places

channels = st.builds(
    Channel, st.sampled_from(Kind), st.sampled_from("abc"), st.text("xyz", max_size=2)
)


@given(st.lists(channels))
def test_places_are_those_of_a_mapping(met: list[Channel]) -> None:
    """The slow and obvious way: a dictionary that numbers its keys."""
    places, expected = Places(), {}
    for channel in met:
        assert places.find(channel) == expected.get(channel)
        if channel not in expected:
            expected[channel] = len(expected)
            assert places.add(channel) == expected[channel]
    assert len(places) == len(expected)
    assert [places.find(c) for c in expected] == list(expected.values())


def test_what_was_never_met_has_no_place() -> None:
    places = Places()
    places.add(Channel(Kind.MODULE, "fc", "act_rms"))
    assert places.find(Channel(Kind.MODULE, "fc", "act_mean")) is None
    assert places.find(Channel(Kind.PARAM, "fc", "act_rms")) is None
    assert places.find(Channel(Kind.MODULE, "fc2", "act_rms")) is None
