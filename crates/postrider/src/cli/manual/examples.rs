//! Examples of the man pages: for each page, commands with what they do.

/// An example: the command line, and what it does.
pub(super) type Example = (&'static str, &'static str);

/// The examples of a page, by the page's name.
pub(super) const EXAMPLES: &[(&str, &[Example])] = &[
    (
        "postrider",
        &[
            (
                "postrider serve",
                "Run the daemon with the configuration file in use, or with the embedded default.",
            ),
            ("postrider queue list", "List the queue."),
            ("postrider queue explain 0abqxshv3c000", "Explain why a message waits."),
        ],
    ),
    (
        "postrider-serve",
        &[
            (
                "postrider serve",
                "Run the daemon with /etc/postrider/postrider.toml, or with the embedded default.",
            ),
            ("postrider serve --config ./postrider.toml", "Run the daemon with another configuration file."),
            ("postrider serve --capture", "Show the mail that a program under test sends, and send none."),
        ],
    ),
    (
        "postrider-quickstart",
        &[
            ("postrider quickstart", "Answer a few questions and get a configuration."),
            (
                "postrider quickstart --hostname mx.example.com --domain example.com --user jane --no-questions",
                "The same in a script.",
            ),
        ],
    ),
    ("postrider-config", &[("postrider config check", "Check the configuration file in use.")]),
    (
        "postrider-config-check",
        &[
            ("postrider config check", "Check the configuration file in use."),
            ("postrider config check ./new.toml", "Check a file before it replaces the one in use."),
            ("postrider config check --json ./new.toml", "Print the problems for a program, as JSON."),
        ],
    ),
    ("postrider-config-schema", &[("postrider config schema", "Print the schema, for an editor.")]),
    (
        "postrider-config-show",
        &[
            (
                "postrider config show",
                "Print every value with its origin: a line of the file, or the default.",
            ),
            ("postrider config show --json", "Print the values as JSON."),
        ],
    ),
    (
        "postrider-doctor",
        &[
            ("postrider doctor", "Check everything; as root, also with the rights of the daemon's user."),
            ("postrider doctor --offline --json", "Check without the network, for a script."),
            (
                "postrider doctor --domain example.org",
                "Look up and connect to the mail server of another domain.",
            ),
        ],
    ),
    (
        "postrider-check",
        &[
            ("postrider check example.com", "Compare the DNS records of a domain with this server."),
            ("postrider check --records example.com", "Look at the records only, where port 25 is closed."),
            ("postrider check --json example.com", "The same for a script."),
        ],
    ),
    (
        "postrider-support-bundle",
        &[
            ("postrider support-bundle --dry-run", "List what a bundle would have."),
            ("postrider support-bundle /tmp", "Write a bundle to a new file in /tmp."),
            (
                "postrider support-bundle --hours 2 bundle.tar.zst",
                "Write a bundle with the workload of two hours.",
            ),
        ],
    ),
    (
        "postrider-backup",
        &[
            (
                "postrider backup /var/backups",
                "Write a backup to a new file in /var/backups, while the daemon runs.",
            ),
            (
                "postrider backup --with-secrets /root/before-the-move.tar.zst",
                "Write a backup with private keys and passwords, to move to another machine.",
            ),
        ],
    ),
    (
        "postrider-restore",
        &[
            ("postrider restore backup.tar.zst --dry-run", "Verify a backup, and say what is in it."),
            (
                "postrider restore backup.tar.zst --files /root/restored",
                "Write the configuration and its files to a directory.",
            ),
            (
                "postrider restore backup.tar.zst",
                "Put the mail into the spool of the stopped daemon, on hold.",
            ),
            (
                "postrider restore backup.tar.zst --spool /srv/other-spool",
                "Put the mail into another, empty spool, on hold.",
            ),
        ],
    ),
    (
        "postrider-import",
        &[
            (
                "postrider import postfix --queue /var/spool/postfix --dry-run",
                "Report what the import would do with Postfix's configuration and queue.",
            ),
            (
                "postrider import exim --output /etc/postrider/postrider.toml",
                "Write a configuration that does the same as Exim's.",
            ),
        ],
    ),
    (
        "postrider-import-postfix",
        &[
            (
                "postrider import postfix /etc/postfix --output ./postrider.toml",
                "Write a configuration, with the files that it needs next to it.",
            ),
            (
                "postrider import postfix --queue /var/spool/postfix",
                "Copy the queue of the stopped Postfix into the spool of the stopped Postrider.",
            ),
            (
                "postrider --config ./postrider.toml import postfix --verify 200",
                "Ask Postfix and Postrider about 200 envelopes of the log, and show the differences.",
            ),
        ],
    ),
    (
        "postrider-import-exim",
        &[(
            "postrider import exim /etc/exim4 --queue /var/spool/exim4",
            "Copy the queue of the stopped Exim into the spool of the stopped Postrider.",
        )],
    ),
    (
        "postrider-import-sendmail",
        &[(
            "postrider import sendmail /etc/mail --queue /var/spool/mqueue",
            "Copy the queue of the stopped Sendmail into the spool of the stopped Postrider.",
        )],
    ),
    (
        "postrider-dkim",
        &[("postrider dkim new example.com --selector 2026a", "Make a key, and print its DNS record.")],
    ),
    (
        "postrider-dkim-new",
        &[
            (
                "postrider dkim new example.com --selector 2026a --out /etc/postrider/dkim.pem",
                "Make an RSA key in this file, and print its DNS record and its section.",
            ),
            (
                "postrider dkim new example.com --selector 2026e --kind ed25519",
                "Make an Ed25519 key for a second signature.",
            ),
        ],
    ),
    (
        "postrider-dkim-show",
        &[("postrider dkim show", "Print the records of all keys, as zone files have them.")],
    ),
    (
        "postrider-dkim-rotate",
        &[(
            "postrider dkim rotate example.com --selector 2026b --wait 1d",
            "Make a new key, and sign with it when its record can be seen.",
        )],
    ),
    (
        "postrider-dkim-check",
        &[("postrider dkim check", "Look up the record of each key, and compare it with the key.")],
    ),
    ("postrider-auth", &[("postrider auth hash joe@example.com", "Print a line for a file of users.")]),
    (
        "postrider-auth-hash",
        &[
            ("postrider auth hash joe@example.com", "Ask for a password, and print the line of the user."),
            (
                "postrider auth hash --scheme scram-sha-256 joe",
                "Make a hash for clients that log in with SCRAM-SHA-256.",
            ),
        ],
    ),
    (
        "postrider-auth-test",
        &[(
            "postrider auth test joe@example.com",
            "Ask for the password of a user, and say whether it is right.",
        )],
    ),
    (
        "postrider-test",
        &[
            (
                "postrider test --client 203.0.113.7 --from a@b.example --to joe@example.com",
                "Show which rules decide about a message of a stranger.",
            ),
            (
                "postrider test --listener submission --client 192.0.2.1 --login joe --from joe@example.com --to x@y.example --file message",
                "The same for a user who has logged in, with the content of a file.",
            ),
        ],
    ),
    (
        "postrider-config-explain",
        &[
            ("postrider config explain rules", "Print the compiled rules in words."),
            ("postrider config explain rule.over", "Explain one key."),
        ],
    ),
    (
        "postrider-map",
        &[
            ("postrider map query aliases:/etc/aliases root", "Print the targets of an alias."),
            ("postrider map check", "Check the files of all maps."),
        ],
    ),
    (
        "postrider-map-query",
        &[
            ("postrider map query text:virtual info@example.com", "Look up an address in a file."),
            ("postrider map query map:users joe@example.com", "Ask the server of [map.users]."),
        ],
    ),
    (
        "postrider-certificate",
        &[
            (
                "postrider certificate list",
                "Print which certificates clients see, and when the next renewal is.",
            ),
            ("postrider certificate renew", "Obtain a new certificate from the authority of [acme] now."),
        ],
    ),
    (
        "postrider-certificate-list",
        &[
            ("postrider certificate list", "Print names, last day and origin of each certificate."),
            ("postrider certificate list --json", "The same for programs, with the state of the renewal."),
        ],
    ),
    (
        "postrider-certificate-renew",
        &[(
            "postrider certificate renew",
            "Obtain a new certificate now; exits with 75 if the authority refuses.",
        )],
    ),
    ("postrider-map-check", &[("postrider map check", "Check the files of all maps.")]),
    (
        "postrider-queue",
        &[
            ("postrider queue list --destination example.com", "List the messages for a domain."),
            ("postrider queue hold all -n", "Print what a command would change."),
        ],
    ),
    (
        "postrider-queue-list",
        &[
            ("postrider queue list", "List all messages in the format of mailq."),
            (
                "postrider queue list --status suspended --ids",
                "Print the queue ids of messages for suspended destinations.",
            ),
            (
                "postrider queue list --json --older 1d",
                "Print messages older than a day, one JSON object on each line.",
            ),
        ],
    ),
    (
        "postrider-queue-count",
        &[("postrider queue count --destination mx:example.com", "Count the messages for a destination.")],
    ),
    (
        "postrider-queue-summary",
        &[
            ("postrider queue summary", "Print the destinations with the ages of their recipients."),
            ("postrider queue summary --json", "Print them as JSON."),
        ],
    ),
    (
        "postrider-queue-explain",
        &[(
            "postrider queue explain 0abqxshv3c000",
            "Print the status, the last outcome and the next attempt of each recipient.",
        )],
    ),
    (
        "postrider-queue-show",
        &[
            ("postrider queue show 0abqxshv3c000", "Print envelope, recipients and header of a message."),
            ("postrider queue show --json 0abqxshv3c000", "Print them as JSON."),
        ],
    ),
    (
        "postrider-queue-hold",
        &[
            ("postrider queue hold 0abqxshv3c000", "Hold a message."),
            ("postrider queue hold --sender '*@news.example.com'", "Hold all messages of a sender domain."),
        ],
    ),
    ("postrider-queue-release", &[("postrider queue release all", "Release all held messages.")]),
    (
        "postrider-queue-retry",
        &[(
            "postrider queue retry --destination example.com",
            "Attempt delivery of the messages for a domain now.",
        )],
    ),
    (
        "postrider-drain",
        &[
            (
                "postrider drain",
                "Refuse new sessions with 421 until `postrider resume`; open sessions and deliveries continue.",
            ),
            ("postrider drain --listener 25", "Refuse new sessions at port 25 only."),
        ],
    ),
    ("postrider-resume", &[("postrider resume", "Accept new sessions at all listeners again.")]),
    (
        "postrider-queue-flush",
        &[(
            "postrider queue flush",
            "Attempt delivery of all messages now, and probe suspended destinations.",
        )],
    ),
    (
        "postrider-queue-bounce",
        &[(
            "postrider queue bounce --recipient '*@typo.example'",
            "Return the recipients of a domain; other recipients of the same messages are not changed.",
        )],
    ),
    (
        "postrider-queue-delete",
        &[
            (
                "postrider queue delete -n --sender spammer@example.com",
                "Print the messages of a sender that would be deleted.",
            ),
            ("postrider queue delete --sender spammer@example.com --older 1h", "Delete them."),
        ],
    ),
    (
        "postrider-queue-redirect",
        &[
            (
                "postrider queue redirect --recipient 'joe@old.example' --to joe@new.example --reason 'moved'",
                "Send the queued mail of an address to another one.",
            ),
            (
                "postrider queue redirect -n --destination mx:partner.example --route backup-relay",
                "Print which mail would leave by the route with this name.",
            ),
        ],
    ),
    (
        "postrider-queue-run",
        &[
            (
                "postrider queue run --runners 20",
                "Attempt delivery of each message once, over 20 connections.",
            ),
            (
                "postrider queue run --dry-run --order time",
                "Measure how long reading and sorting the queue takes.",
            ),
        ],
    ),
    ("postrider-spool", &[("postrider spool check", "Verify all records of all configured spools.")]),
    (
        "postrider-spool-check",
        &[
            ("postrider spool check", "Verify all records of all configured spools."),
            (
                "postrider spool check --path /mnt/backup/spool --json",
                "Verify another spool, and print JSON.",
            ),
        ],
    ),
    ("postrider-spool-dump", &[("postrider spool dump 0abqxshv3c000", "Print all records of a message.")]),
    (
        "postrider-spool-salvage",
        &[(
            "postrider spool salvage --into /root/salvaged",
            "Write the messages of damaged segments to files.",
        )],
    ),
    (
        "postrider-spool-convert",
        &[(
            "postrider spool convert --to queue-dirs --into /var/spool/postrider-dirs",
            "Copy all messages into queue directories.",
        )],
    ),
    (
        "postrider-why",
        &[
            ("postrider why 0abqxshv3c000", "Explain why a message waits, or what became of it."),
            ("postrider why 0abqxshv3c000 --at 14:30", "Show the state of the message today at 14:30."),
            ("postrider why 0abqxshv3c000 --json", "Print a JSON object for a program."),
        ],
    ),
    (
        "postrider-history",
        &[("postrider history query --recipient joe@example.com", "Show the last mail for a recipient.")],
    ),
    (
        "postrider-history-query",
        &[
            (
                "postrider history query --message-id 20261121.1@example.com",
                "Show what became of a message whose Message-ID the sender knows.",
            ),
            (
                "postrider history query --sender ann@example.com --domain example.net --since 3d",
                "Show mail of three days from a sender to a domain.",
            ),
            (
                "postrider history query --login ann --client 192.0.2.7 --json",
                "Print what a login sent from an address, as JSON.",
            ),
        ],
    ),
    (
        "postrider-status",
        &[
            ("postrider status", "Print the counters of recipients and the state of the spool."),
            ("postrider status --json", "Print them as JSON, for a monitor."),
        ],
    ),
    (
        "postrider-reload",
        &[(
            "postrider reload",
            "Read the configuration again; prints its problems and exits with 78 if it has any.",
        )],
    ),
    ("postrider-version", &[("postrider version", "Print the version and the commit.")]),
    (
        "postrider-completions",
        &[(
            "postrider completions bash",
            "Print the completion script for bash; write it to /usr/share/bash-completion/completions/postrider.",
        )],
    ),
    ("postrider-man", &[("postrider man ./man", "Write the man pages to a directory.")]),
    (
        "postrider-sendmail",
        &[("postrider sendmail -t", "Submit the message on standard input to the recipients in its header.")],
    ),
    ("postrider-mailq", &[("postrider mailq", "List the queue.")]),
    ("postrider-newaliases", &[("postrider newaliases", "Check the alias files.")]),
];

/// The examples of sendmail(1).
pub(super) const SENDMAIL: &[Example] = &[
    ("sendmail -i bob@example.com <message", "Submit a message to a recipient."),
    ("sendmail -t <message", "Submit a message to the recipients in To, Cc and Bcc."),
    ("sendmail -bv bob@example.com", "Print where mail for an address goes, without sending anything."),
    ("mailq", "List the queue."),
];

/// An example of postrider.toml(5).
pub(super) const SETTINGS: &str = "\
hostname = \"mx.example.com\"
data_dir = \"/var/lib/postrider\"

[[listen]]
address = \"systemd:smtp\"

[local]
domains = [\"example.com\", \"mx.example.com\"]

[log]
file = \"/var/log/postrider/mail.json\"
";
