import pytest
from hypothesis import given
from hypothesis import strategies as st

from windrow.probes.metrics import Measure, render_metrics


def test_a_counter_without_labels_begins_at_nothing_and_one_with_labels_is_not_there_yet():
    plain, labelled = (
        Measure("syncs_total", "counter", "Syncs."),
        Measure("x_total", "counter", "X.", ("host",)),
    )

    assert (
        render_metrics([plain, labelled])
        == "# HELP syncs_total Syncs.\n# TYPE syncs_total counter\nsyncs_total 0\n"
    )


def test_labels_keep_their_order_and_their_odd_characters():
    measure = Measure("calls_total", "counter", "Calls.", ("verb", "host"))
    measure.add(host='a"b\\c\nd', verb="GET")
    measure.add(2, host="a", verb="GET")

    assert render_metrics([measure]).splitlines()[2:] == [
        'calls_total{verb="GET",host="a"} 2',
        'calls_total{verb="GET",host="a\\"b\\\\c\\nd"} 1',
    ]


def test_a_histogram_counts_each_value_in_every_bucket_that_holds_it():
    measure = Measure("took_seconds", "histogram", "Time.", bounds=(0.5, 1.0, 4.0))
    for value in (0.25, 0.5, 2, 100):
        measure.observe(value)

    assert render_metrics([measure]).splitlines()[2:] == [
        'took_seconds_bucket{le="0.5"} 2',
        'took_seconds_bucket{le="1"} 2',
        'took_seconds_bucket{le="4"} 3',
        'took_seconds_bucket{le="+Inf"} 4',
        "took_seconds_sum 102.75",
        "took_seconds_count 4",
    ]


@given(st.lists(st.floats(0, 1e6)))
def test_buckets_never_fall_and_end_with_the_count(values):
    measure = Measure("x", "histogram", "X.", bounds=(1.0, 10.0, 1000.0))
    for value in values:
        measure.observe(value)

    lines = render_metrics([measure]).splitlines()[2:]
    buckets = [int(line.rpartition(" ")[2]) for line in lines if "_bucket" in line]
    assert buckets == sorted(buckets)
    assert buckets[-1] == len(values)


def test_what_is_known_elsewhere_is_asked_when_somebody_looks():
    measure, depth = Measure("depth", "gauge", "Depth.", ("name",)), []
    measure.ask(lambda: len(depth), name="service")
    depth.append("key")

    assert measure.value(name="service") == 1
    assert 'depth{name="service"} 1\n' in render_metrics([measure])


def test_states_that_no_service_is_in_any_more_are_forgotten():
    measure = Measure("services", "gauge", "Services.", ("state",))
    measure.replace({"waiting": 2})
    measure.replace({"ready": 2})

    assert (measure.value(state="waiting"), measure.value(state="ready")) == (0, 2)
    assert "waiting" not in render_metrics([measure])


def test_a_label_that_the_metric_does_not_have_is_a_mistake():
    with pytest.raises(ValueError, match="has the labels"):
        Measure("x", "counter", "X.", ("host",)).add(node="a")
