"""What the sessions of TensorFlow 1 report of their steps."""

import pytest

from tests.unit.clocks import HandClock

pytest.importorskip("tensorflow")


def test_a_session_reports_before_its_first_step_so_that_the_next_report_has_a_rate() -> None:
    import tensorflow as tf

    from sparktrain.training.frameworks.tensorflow.strategies.session_hooks import REPORT_EVERY_S, ReportSteps

    v1 = tf.compat.v1
    reports: list[tuple[int, bool]] = []
    clock = HandClock()
    with tf.Graph().as_default():
        step = v1.train.get_or_create_global_step()
        train = v1.assign_add(step, 1)
        hook = ReportSteps(lambda number, training: reports.append((number, training)), step, clock)
        with v1.train.MonitoredTrainingSession(hooks=[hook]) as session:
            assert reports == [], "a program may do anything before its first step"
            for _ in range(3):
                session.run(train)
            assert reports == [(0, True), (1, True)]
            clock.at = REPORT_EVERY_S
            session.run(train)
    assert reports[2] == (4, True)
    assert [training for _, training in reports[3:]] == [False]
