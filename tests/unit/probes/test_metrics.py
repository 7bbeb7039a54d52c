from windrow.probes.metrics import Registry


def test_a_metric_without_labels_begins_at_0_and_one_with_labels_has_no_sample_yet():
    registry = Registry()
    registry.counter("syncs_total", "Syncs.")
    registry.counter("calls_total", "Calls.", ("host",))

    assert [line for line in registry.render().splitlines() if line[0] != "#"] == ["syncs_total 0.0"]


def test_a_name_is_the_name_that_was_given():
    registry = Registry()
    registry.counter("syncs_total", "Syncs.").inc()

    text = registry.render()

    assert "# TYPE syncs_total counter\n" in text
    assert registry.value("syncs_total") == 1


def test_no_series_tells_when_another_one_was_created():
    registry = Registry()
    registry.counter("syncs_total", "Syncs.").inc()
    registry.histogram("took_seconds", "Time.", (1.0,)).observe(2)

    assert "_created" not in registry.render()


def test_labels_are_escaped_as_the_text_format_has_it():
    registry = Registry()
    registry.counter("calls_total", "Calls.", ("host",)).labels('a"b\\c\nd').inc()

    assert 'calls_total{host="a\\"b\\\\c\\nd"} 1.0' in registry.render()


def test_a_histogram_has_exactly_the_buckets_that_were_given():
    registry = Registry()
    histogram = registry.histogram("took_seconds", "Time.", (0.5, 1.0, 4.0))
    for value in (0.25, 0.5, 2, 100):
        histogram.observe(value)

    assert [line for line in registry.render().splitlines() if line[0] != "#"] == [
        'took_seconds_bucket{le="0.5"} 2.0',
        'took_seconds_bucket{le="1.0"} 2.0',
        'took_seconds_bucket{le="4.0"} 3.0',
        'took_seconds_bucket{le="+Inf"} 4.0',
        "took_seconds_count 4.0",
        "took_seconds_sum 102.75",
    ]


def test_two_registries_have_metrics_of_one_name():
    one, other = Registry(), Registry()
    one.counter("syncs_total", "Syncs.").inc()
    other.counter("syncs_total", "Syncs.")

    assert (one.value("syncs_total"), other.value("syncs_total")) == (1, 0)
