//! All sections, in the order of the manual.

use crate::{
    acme::Acme,
    dns::Dns,
    extensions::Extensions,
    filter::FilterKeys,
    history::History,
    local::LocalKeys,
    log::Log,
    map::MapKeys,
    metrics::Metrics,
    oauth::OAuth,
    outbound::Delivery,
    process::Process,
    route::keys::RouteKeys,
    rules::keys::{Checks, GreylistKeys, LimitRateKeys, PolicyServiceKeys, RuleKeys},
    section::{Section, SectionDoc},
    settings::*,
    sign::SignKeys,
    workers::Workers,
};

/// `[hosts]` has free keys, so it is no struct.
const HOSTS: SectionDoc = SectionDoc {
    name: "hosts",
    repeated: false,
    named: false,
    about: " Host names with fixed addresses, which are not looked up: for tests, and for sites without DNS. Each key is a host
 name in quotes, and its value is a list of addresses: `\"mx.example.com\" = [\"192.0.2.1\"]`. A domain in this section has
 no MX records.
",
    keys: &[],
};

/// Every section with its keys, for the reader and the manual.
pub fn schema() -> [SectionDoc; 36] {
    [
        GlobalKeys::DOC,
        ListenKeys::DOC,
        RelayKeys::DOC,
        LocalKeys::DOC,
        Addresses::DOC,
        Notifications::DOC,
        MapKeys::DOC,
        RouteKeys::DOC,
        RuleKeys::DOC,
        Checks::DOC,
        GreylistKeys::DOC,
        LimitRateKeys::DOC,
        PolicyServiceKeys::DOC,
        FilterKeys::DOC,
        Tls::DOC,
        CertificateKeys::DOC,
        Acme::DOC,
        SignKeys::DOC,
        Auth::DOC,
        OAuth::DOC,
        LimitKeys::DOC,
        TimeoutKeys::DOC,
        Inbound::DOC,
        Extensions::DOC,
        Delivery::DOC,
        Queue::DOC,
        QueueGroupKeys::DOC,
        Spool::DOC,
        Dns::DOC,
        HOSTS,
        Log::DOC,
        Metrics::DOC,
        History::DOC,
        Control::DOC,
        Process::DOC,
        Workers::DOC,
    ]
}
