//! Each rule fires on its own case and is silent on the others. The cases are measurements on a machine with two cores.

use super::*;

fn times(us: [f64; 5]) -> Times {
    let [p50_us, p90_us, p99_us, p999_us, max_us] = us;
    Times { count: 5000, mean_us: p50_us, min_us: p50_us / 10.0, p50_us, p90_us, p99_us, p999_us, max_us }
}

/// Postfix with 20 sessions that has time to spare: nothing limits it but its own steps.
fn calm() -> Evidence {
    Evidence {
        mta: Some(Mta::Postfix),
        sessions: 20,
        accepted: 400.0,
        drained: 395.0,
        ceiling: Some(4000.0),
        next_hop_ms: Some(0.1),
        phases: BTreeMap::from([
            (Phase::Connect, times([600.0, 5e3, 26e3, 40e3, 60e3])),
            (Phase::Rcpt, times([6.9e3, 15e3, 30e3, 45e3, 60e3])),
            (Phase::Final, times([14e3, 30e3, 56e3, 80e3, 99e3])),
            (Phase::Quit, times([4.2e3, 12e3, 33e3, 40e3, 50e3])),
        ]),
        cores: 2.0,
        busy_share: 0.6,
        mta_cores: Some(0.8),
        other_cores: 0.1,
        counts_ended: true,
        top: Some(("cleanup".into(), 0.2, 0.02)),
        disk_waits: 1.25,
        disk_waits_of: "cleanup".into(),
        fsync_ms: Some(1.1),
        dns_sockets: 0.0,
        overflows_per_connection: 0.0,
        sink_open_peak: 12.0,
        idle_share: 0.0,
        backlog_at_end: 26.0,
        is_paced: false,
        delays: Some(Delays {
            deliveries: 700,
            before_queue_manager_ms: 26.0,
            queue_manager_ms: 9.6,
            connection_ms: 5.3,
            transmission_ms: 5.6,
        }),
    }
}

/// A case for each cause, told apart from [`calm`] by what was measured there.
fn cases() -> Vec<(Cause, Evidence)> {
    let second = times([8e3, 40e3, 1.011e6, 1.016e6, 1.024e6]);
    let with = |phase: Phase, times: Times| {
        let mut phases = calm().phases;
        phases.insert(phase, times);
        phases
    };
    let delays = |connection_ms: f64| calm().delays.map(|delays| Delays { connection_ms, ..delays });
    vec![
        (Cause::LoadGenerator, Evidence { accepted: 3600.0, drained: 3590.0, ..calm() }),
        (Cause::InFlowDelay, Evidence { phases: with(Phase::Rcpt, second), backlog_at_end: 900.0, ..calm() }),
        (Cause::Dns, Evidence { dns_sockets: 6.5, drained: 30.0, backlog_at_end: 1500.0, ..calm() }),
        (Cause::Dns, Evidence { delays: delays(5040.0), drained: 4.0, backlog_at_end: 1500.0, ..calm() }),
        (
            Cause::DeliveryConcurrency,
            Evidence { sink_open_peak: 1.0, drained: 180.0, backlog_at_end: 1100.0, ..calm() },
        ),
        (
            Cause::SlowNextHop,
            Evidence {
                next_hop_ms: Some(100.0),
                drained: 190.0,
                sink_open_peak: 20.0,
                backlog_at_end: 1000.0,
                ..calm()
            },
        ),
        (
            Cause::SlowDisk,
            Evidence {
                fsync_ms: Some(41.0),
                disk_waits: 14.0,
                accepted: 90.0,
                drained: 89.0,
                busy_share: 0.3,
                ..calm()
            },
        ),
        (
            Cause::ListenQueue,
            Evidence {
                overflows_per_connection: 0.2,
                phases: with(Phase::Connect, times([50.0, 300.0, 1.02e6, 3.05e6, 7e6])),
                accepted: 15.0,
                drained: 15.0,
                busy_share: 0.1,
                ..calm()
            },
        ),
        (
            Cause::ReplyTimer,
            Evidence {
                mta: Some(Mta::Exim),
                phases: with(Phase::Quit, times([200.4e3, 201e3, 202e3, 204e3, 210e3])),
                accepted: 48.0,
                drained: 48.0,
                delays: None,
                ..calm()
            },
        ),
        (
            Cause::SchedulerPauses,
            Evidence {
                mta: Some(Mta::Opensmtpd),
                idle_share: 0.8,
                drained: 60.0,
                backlog_at_end: 1700.0,
                delays: None,
                busy_share: 0.2,
                ..calm()
            },
        ),
        (Cause::OneProcess, Evidence { top: Some(("qmgr".into(), 0.97, 0.97)), ..calm() }),
        (Cause::Cpu, Evidence { busy_share: 0.98, mta_cores: Some(1.6), ..calm() }),
        (Cause::OtherLoad, Evidence { busy_share: 0.99, mta_cores: Some(0.7), other_cores: 1.1, ..calm() }),
    ]
}

#[test]
fn each_rule_fires_on_its_case_and_on_no_other() {
    for (expected, evidence) in cases() {
        let causes: Vec<Cause> = findings(&evidence).into_iter().map(|finding| finding.cause).collect();
        assert_eq!(causes, [expected], "{evidence:?}");
    }
}

#[test]
fn every_rule_has_a_case() {
    let cases = cases();
    for (cause, _) in RULES {
        assert!(cases.iter().any(|(expected, _)| *expected == cause), "{cause}");
    }
}

#[test]
fn nothing_is_named_where_nothing_limits() {
    assert_eq!(findings(&calm()), []);
    assert_eq!(findings(&Evidence::default()), []);
}

#[test]
fn a_quantity_that_was_not_measured_names_nothing() {
    for (expected, evidence) in cases() {
        let blind = Evidence {
            ceiling: None,
            next_hop_ms: None,
            fsync_ms: None,
            mta_cores: None,
            top: None,
            delays: None,
            mta: None,
            ..evidence
        };
        let others = findings(&blind).into_iter().filter(|finding| finding.cause != expected);
        assert_eq!(others.count(), 0, "{expected}");
    }
}

#[test]
fn a_pause_of_a_second_is_not_blamed_on_another_server_or_on_a_slow_disk() {
    let slow = times([300e3, 700e3, 1.0e6, 1.9e6, 2.5e6]);
    let evidence = Evidence { phases: BTreeMap::from([(Phase::Final, slow)]), ..calm() };
    assert_eq!(findings(&evidence), []);
    let pause = times([8e3, 40e3, 1.011e6, 1.016e6, 1.024e6]);
    let evidence =
        Evidence { mta: Some(Mta::Exim), phases: BTreeMap::from([(Phase::Rcpt, pause)]), ..calm() };
    assert_eq!(findings(&evidence), []);
}

#[test]
fn a_fast_acceptance_in_front_of_a_slow_delivery_is_not_the_load_generators_limit() {
    let evidence = Evidence {
        accepted: 3600.0,
        drained: 99.0,
        next_hop_ms: Some(200.0),
        sink_open_peak: 20.0,
        backlog_at_end: 14_000.0,
        ..calm()
    };
    let causes: Vec<Cause> = findings(&evidence).into_iter().map(|finding| finding.cause).collect();
    assert_eq!(causes, [Cause::SlowNextHop]);
}

#[test]
fn the_most_specific_cause_comes_first() {
    let evidence = Evidence {
        next_hop_ms: Some(100.0),
        sink_open_peak: 1.0,
        drained: 9.5,
        backlog_at_end: 2000.0,
        ..calm()
    };
    let causes: Vec<Cause> = findings(&evidence).into_iter().map(|finding| finding.cause).collect();
    assert_eq!(causes, [Cause::DeliveryConcurrency, Cause::SlowNextHop]);
}

#[test]
fn a_server_that_takes_all_that_a_paced_source_offers_has_no_bottleneck() {
    let idle = Evidence {
        accepted: 20.0,
        drained: 20.0,
        ceiling: Some(20.0),
        backlog_at_end: 0.0,
        next_hop_ms: Some(60.0),
        sink_open_peak: 1.0,
        is_paced: true,
        ..calm()
    };
    assert_eq!(findings(&idle), []);
    // Also beside other processes that use the machine.
    assert_eq!(
        findings(&Evidence { busy_share: 0.97, other_cores: 1.6, mta_cores: Some(0.1), ..idle.clone() }),
        []
    );
    // The same load without a pause is all that the load generator can do.
    let causes = |evidence: &Evidence| findings(evidence).iter().map(|found| found.cause).collect::<Vec<_>>();
    assert_eq!(
        causes(&Evidence { is_paced: false, next_hop_ms: Some(0.1), ..idle.clone() }),
        [Cause::LoadGenerator]
    );
    // A rate that is not reached has its cause, and a reply that is late is told at any rate.
    let behind = Evidence { accepted: 20.0, drained: 10.0, backlog_at_end: 40.0, ..idle.clone() };
    assert_eq!(causes(&behind), [Cause::DeliveryConcurrency, Cause::SlowNextHop]);
    let mut late = idle;
    late.phases.insert(Phase::Quit, times([200.4e3, 201e3, 202e3, 204e3, 210e3]));
    assert_eq!(causes(&late), [Cause::ReplyTimer]);
}
