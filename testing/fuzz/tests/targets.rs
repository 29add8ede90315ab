//! Each target on its corpus and on random input; libFuzzer takes over under cargo-bolero.

macro_rules! targets {
    ($($name:ident),* $(,)?) => { $(
        #[test]
        fn $name() {
            bolero::check!().with_max_len(4096).for_each(|bytes: &[u8]| {
                fuzz::$name(bytes);
                fuzz::$name(&fuzz::spell(bytes));
            });
        }
    )* };
}

targets!(
    command_line,
    address,
    alias_targets,
    aliases_file,
    authentication_results,
    cdb_file,
    data_content,
    dkim_signatures,
    dmarc_records,
    dns_answers,
    chunk_content,
    introspection_answer,
    server_session,
    header_edit,
    client_replies,
    client_session,
    client_conversation,
    configuration,
    engine_events,
    exim_configuration,
    exim_queue,
    history_segment,
    hook_answer,
    limit_files,
    map_files,
    milter_answers,
    notice_templates,
    passwd_file,
    postfix_configuration,
    postfix_queue,
    proxy_header,
    rspamd_answer,
    rule_program,
    rule_values,
    sasl_client,
    sasl_server,
    sendmail_configuration,
    sendmail_queue,
    seven_bit_content,
    socketmap_reply,
    spf_records,
    spool_digest,
    spool_envelope,
    spool_format,
    spool_intent,
    spool_recovery,
    spool_totals
);
