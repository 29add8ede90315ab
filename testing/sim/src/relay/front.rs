//! The configuration of the relay's front: real settings, and behind the daemon's checks those of the simulator.

use super::checks::{SharedJudgments, SimCheck};
use accept::{AcceptConfig, Mutant, Surroundings};
use config::Settings;
use delivery::{Courier, DeliverySettings, TlsClient};
use engine::ReportSettings;
use mail::Mailbox;
use route::{
    Router, RouterSettings,
    dns::{Dns, DnsSettings},
};
use std::{
    collections::HashMap,
    sync::{Arc, LazyLock},
    time::Duration,
};

/// The name of the field that a rule of the configuration adds to each message: the generation, and nothing else.
pub(super) const RULE_FIELD: &str = "X-Generation";
/// A local domain: everybody may send mail to it.
pub(super) const HOME: &str = "home.test";
/// How long a client waits for a commit.
const COMMIT_TIMEOUT: Duration = Duration::from_secs(30);

/// Returns the address of the relay's postmaster.
pub(super) fn postmaster() -> Mailbox {
    Mailbox::parse("postmaster@mx.test", false).expect("an address")
}

/// What the front needs and nothing asks here: a resolver whose server does not answer, and a client of next hops.
struct Outside {
    dns: Arc<Dns>,
    courier: Arc<Courier>,
}

static OUTSIDE: LazyLock<Outside> = LazyLock::new(|| {
    let settings = settings(0);
    let dns = Arc::new(
        Dns::new(DnsSettings {
            name_servers: vec!["192.0.2.53:53".parse().expect("an address")],
            timeout: Duration::from_secs(1),
            attempts: 1,
            hosts: HashMap::new(),
            questions_max: 1,
            client_questions_max: 1,
        })
        .expect("a resolver"),
    );
    let router = RouterSettings { hostname: settings.hostname.clone(), listening: Vec::new(), mx_port: 25 };
    let roots = config::certificate::roots(None).expect("Mozilla's authorities");
    let tls = TlsClient::new(roots, config::certificate::versions(&settings), None).expect("a client of TLS");
    let delivery = &settings.delivery;
    let delivery = DeliverySettings {
        hello: settings.hostname.as_str().into(),
        follow_symlinks: false,
        separator: None,
        source_address: None,
        routes: HashMap::new(),
        messages_per_connection: delivery.messages_per_connection,
        recipients_per_transaction: delivery.recipients_per_transaction,
        eight_bit: delivery.eight_bit,
        pipeline_depth: delivery.pipeline_depth,
        idle_timeout: delivery.idle_timeout,
        reuse_timeout: delivery.reuse_timeout,
        connect_timeout: delivery.connect_timeout,
        greeting_timeout: delivery.greeting_timeout,
        command_timeout: delivery.command_timeout,
        data_timeout: delivery.data_timeout,
        data_done_timeout: delivery.data_done_timeout,
    };
    let courier = Arc::new(Courier::new(Router::new(dns.clone(), router), delivery, tls));
    Outside { dns, courier }
});

/// The settings of a generation, read from a text as the daemon reads its file.
fn settings(generation: u64) -> Settings {
    let commit_timeout = COMMIT_TIMEOUT.as_secs();
    let text = format!(
        r#"
hostname = "mx.test"
data_dir = "/nonexistent/postrider"

[local]
domains = ["{HOME}", "mx.test"]

[relay]
networks = ["192.0.2.0/24"]

[[route]]
domains = ["{HOME}"]
smarthost = "hub.test:25"

[[rule]]
for = "all"
at = "content"
add_header = ["{RULE_FIELD}: {generation}"]

[extensions]
vrfy = "everybody"

[limits]
max_rejected_recipients = 1000

[spool]
commit_timeout = "{commit_timeout}s"
"#
    );
    config::load_text(&text).unwrap_or_else(|problems| panic!("{problems}")).settings
}

/// Makes the configuration of a generation. What outlives a reload is taken over from `old`.
pub(super) fn configure(
    generation: u64,
    judgments: &SharedJudgments,
    mutant: Mutant,
    old: Option<&AcceptConfig>,
) -> AcceptConfig {
    let surroundings = Surroundings {
        dns: OUTSIDE.dns.clone(),
        courier: OUTSIDE.courier.clone(),
        reports: ReportSettings::new(postmaster()),
        kept_bytes: 0,
        target_fault: |_| None,
        forwards: None,
    };
    let mut config = AcceptConfig::new(settings(generation), old, surroundings).expect("a configuration");
    config.pipeline.set_mutant(mutant);
    for check in SimCheck::both(generation, judgments) {
        config.pipeline.add(Box::new(check));
    }
    config
}
