/*
 * A filter on Debian's libmilter that does as it is told: a test talks to it.
 *
 *   filter SOCKET MODE
 *
 * The name of the client (at connect), the name of HELO, and the local part of the sender say what to answer at which stage:
 * "rcpt-reject", "eom-reply", "eom-edit" and so on; "continue" is the answer to all else. Modes:
 *
 *   plain    every stage is answered
 *   silent   no stage but the end of the message is answered
 *   blind    only the end of the message is sent
 *   macros   lists of macros are chosen
 *   few      no action is negotiated
 *   space    header fields keep the space behind the colon
 *   rejected recipients that the server rejected are sent, too
 *   old      no callback negotiates, as in filters of long ago
 *
 * It says "listening" when it does. Each message gets a field X-Seen with what the filter was told.
 */
#include <libmilter/mfapi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *mode;

struct state {
	char told[64];   /* "STAGE-ANSWER" */
	char seen[4096]; /* what the filter was told, for a header field */
	size_t body;
};

static struct state *state_of(SMFICTX *ctx)
{
	struct state *state = smfi_getpriv(ctx);
	if (state == NULL) {
		state = calloc(1, sizeof *state);
		smfi_setpriv(ctx, state);
	}
	return state;
}

static void see(SMFICTX *ctx, const char *what, const char *value)
{
	struct state *state = state_of(ctx);
	size_t used = strlen(state->seen);
	snprintf(state->seen + used, sizeof state->seen - used, "%s[%s]", what, value ? value : "-");
}

static void tell(SMFICTX *ctx, const char *name)
{
	struct state *state = state_of(ctx);
	size_t length;
	if (*name == '<')
		name++;
	length = strcspn(name, "@.>");
	if (length < sizeof state->told) {
		memcpy(state->told, name, length);
		state->told[length] = 0;
	}
}

static sfsistat answer(SMFICTX *ctx, const char *stage)
{
	struct state *state = state_of(ctx);
	size_t length = strlen(stage);
	const char *verdict = state->told + length + 1;
	if (strcmp(mode, "silent") == 0 && strcmp(stage, "eom") != 0)
		return SMFIS_NOREPLY;
	if (strncmp(state->told, stage, length) != 0 || state->told[length] != '-')
		return SMFIS_CONTINUE;
	if (strcmp(verdict, "accept") == 0)
		return SMFIS_ACCEPT;
	if (strcmp(verdict, "reject") == 0)
		return SMFIS_REJECT;
	if (strcmp(verdict, "tempfail") == 0)
		return SMFIS_TEMPFAIL;
	if (strcmp(verdict, "discard") == 0)
		return SMFIS_DISCARD;
	if (strcmp(verdict, "skip") == 0)
		return SMFIS_SKIP;
	if (strcmp(verdict, "reply") == 0) {
		smfi_setreply(ctx, "550", "5.7.1", "100%% spam");
		return SMFIS_REJECT;
	}
	if (strcmp(verdict, "bare") == 0) {
		smfi_setreply(ctx, "451", NULL, "later");
		return SMFIS_TEMPFAIL;
	}
	if (strcmp(verdict, "lines") == 0) {
		smfi_setmlreply(ctx, "554", "5.6.0", "first", "second", "third", (char *)NULL);
		return SMFIS_REJECT;
	}
	if (strcmp(verdict, "shutdown") == 0) {
		smfi_setreply(ctx, "421", "4.3.2", "closing");
		return SMFIS_TEMPFAIL;
	}
	return SMFIS_CONTINUE;
}

static sfsistat on_connect(SMFICTX *ctx, char *host, _SOCK_ADDR *address)
{
	tell(ctx, host);
	see(ctx, "j", smfi_getsymval(ctx, "j"));
	see(ctx, "addr", smfi_getsymval(ctx, "{daemon_addr}"));
	see(ctx, "connect", address == NULL ? "unknown" : address->sa_family == AF_INET ? "4" :
		address->sa_family == AF_INET6 ? "6" : "unix");
	return answer(ctx, "connect");
}

static sfsistat on_helo(SMFICTX *ctx, char *name)
{
	tell(ctx, name);
	see(ctx, "helo", name);
	see(ctx, "cipher", smfi_getsymval(ctx, "{cipher}"));
	return answer(ctx, "helo");
}

static sfsistat on_mail(SMFICTX *ctx, char **words)
{
	struct state *state = state_of(ctx);
	state->body = 0;
	tell(ctx, words[0]);
	for (; *words; words++)
		see(ctx, "mail", *words);
	see(ctx, "i", smfi_getsymval(ctx, "i"));
	see(ctx, "authen", smfi_getsymval(ctx, "{auth_authen}"));
	return answer(ctx, "mail");
}

static sfsistat on_rcpt(SMFICTX *ctx, char **words)
{
	for (; *words; words++)
		see(ctx, "rcpt", *words);
	see(ctx, "mailer", smfi_getsymval(ctx, "{rcpt_mailer}"));
	return answer(ctx, "rcpt");
}

static sfsistat on_data(SMFICTX *ctx)
{
	see(ctx, "data", NULL);
	return answer(ctx, "data");
}

static sfsistat on_header(SMFICTX *ctx, char *name, char *value)
{
	char escaped[256];
	size_t at;
	snprintf(escaped, sizeof escaped, "%s:%s", name, value);
	for (at = 0; escaped[at]; at++)
		if (escaped[at] < ' ')
			escaped[at] = '|';
	see(ctx, "header", escaped);
	return answer(ctx, "header");
}

static sfsistat on_eoh(SMFICTX *ctx)
{
	see(ctx, "eoh", NULL);
	return answer(ctx, "eoh");
}

static sfsistat on_body(SMFICTX *ctx, unsigned char *bytes, size_t length)
{
	(void)bytes;
	state_of(ctx)->body += length;
	return answer(ctx, "body");
}

static void edit(SMFICTX *ctx)
{
	smfi_progress(ctx);
	smfi_addheader(ctx, "X-Added", "one\n\ttwo");
	smfi_insheader(ctx, 0, "X-Inserted", "top");
	smfi_insheader(ctx, 2, "X-Inserted", "third");
	smfi_chgheader(ctx, "Subject", 1, "changed");
	smfi_chgheader(ctx, "X-Spam", 2, NULL);
	smfi_chgfrom(ctx, "<new@a.test>", NULL);
	smfi_chgfrom(ctx, "newer@a.test", "SIZE=1 ENVID=x");
	smfi_addrcpt(ctx, "<added@b.test>");
	smfi_addrcpt_par(ctx, "<added2@b.test>", "NOTIFY=NEVER");
	smfi_delrcpt(ctx, "<bob@b.test>");
	smfi_replacebody(ctx, (unsigned char *)"new\r\n", 5);
	smfi_replacebody(ctx, (unsigned char *)"body\r\n", 6);
	smfi_quarantine(ctx, "looks odd");
}

static sfsistat on_eom(SMFICTX *ctx)
{
	struct state *state = state_of(ctx);
	char number[32];
	snprintf(number, sizeof number, "%lu", (unsigned long)state->body);
	see(ctx, "body", number);
	if (strcmp(state->told, "eom-edit") == 0)
		edit(ctx);
	if (strcmp(state->told, "eom-big") == 0) {
		static unsigned char body[200000];
		memset(body, 'x', sizeof body);
		smfi_replacebody(ctx, body, sizeof body);
	}
	if (strcmp(mode, "few") == 0)
		see(ctx, "addheader", smfi_addheader(ctx, "X-Seen", "x") == MI_FAILURE ? "failed" : "done");
	else
		smfi_addheader(ctx, "X-Seen", state->seen);
	state->seen[0] = 0;
	return answer(ctx, "eom");
}

static sfsistat on_abort(SMFICTX *ctx)
{
	see(ctx, "abort", NULL);
	return SMFIS_CONTINUE;
}

static sfsistat on_close(SMFICTX *ctx)
{
	free(smfi_getpriv(ctx));
	smfi_setpriv(ctx, NULL);
	return SMFIS_CONTINUE;
}

static sfsistat on_unknown(SMFICTX *ctx, const char *line)
{
	see(ctx, "unknown", line);
	return answer(ctx, "unknown");
}

static sfsistat on_negotiate(SMFICTX *ctx, unsigned long actions, unsigned long steps, unsigned long reserved2,
	unsigned long reserved3, unsigned long *wanted_actions, unsigned long *wanted_steps, unsigned long *out2,
	unsigned long *out3)
{
	(void)reserved2;
	(void)reserved3;
	*out2 = *out3 = 0;
	*wanted_actions = actions & 0xff;
	*wanted_steps = steps & SMFIP_SKIP;
	if (strcmp(mode, "silent") == 0)
		*wanted_steps |= steps & (SMFIP_NR_CONN | SMFIP_NR_HELO | SMFIP_NR_MAIL | SMFIP_NR_RCPT | SMFIP_NR_DATA |
			SMFIP_NR_HDR | SMFIP_NR_EOH | SMFIP_NR_BODY | SMFIP_NR_UNKN);
	if (strcmp(mode, "blind") == 0)
		*wanted_steps |= steps & (SMFIP_NOCONNECT | SMFIP_NOHELO | SMFIP_NOMAIL | SMFIP_NORCPT | SMFIP_NODATA |
			SMFIP_NOHDRS | SMFIP_NOEOH | SMFIP_NOBODY | SMFIP_NOUNKNOWN);
	if (strcmp(mode, "space") == 0)
		*wanted_steps |= steps & SMFIP_HDR_LEADSPC;
	if (strcmp(mode, "rejected") == 0)
		*wanted_steps |= steps & SMFIP_RCPT_REJ;
	if (strcmp(mode, "few") == 0)
		*wanted_actions = 0;
	if (strcmp(mode, "macros") == 0) {
		smfi_setsymlist(ctx, SMFIM_CONNECT, "{daemon_addr}");
		smfi_setsymlist(ctx, SMFIM_ENVFROM, "{auth_authen} i");
		smfi_setsymlist(ctx, SMFIM_EOM, "{none}");
	}
	return SMFIS_CONTINUE;
}

int main(int argc, char **argv)
{
	struct smfiDesc filter = {
		"filter", SMFI_VERSION, SMFIF_ADDHDRS | SMFIF_CHGBODY | SMFIF_ADDRCPT | SMFIF_DELRCPT | SMFIF_CHGHDRS |
			SMFIF_QUARANTINE | SMFIF_CHGFROM | SMFIF_ADDRCPT_PAR,
		on_connect, on_helo, on_mail, on_rcpt, on_header, on_eoh, on_body, on_eom, on_abort, on_close, on_unknown,
		on_data, on_negotiate
	};
	char socket[512];
	if (argc != 3)
		return 64;
	mode = argv[2];
	if (strcmp(mode, "old") == 0) {
		filter.xxfi_flags = SMFIF_ADDHDRS;
		filter.xxfi_negotiate = NULL;
	}
	snprintf(socket, sizeof socket, "unix:%s", argv[1]);
	if (smfi_register(filter) == MI_FAILURE || smfi_setconn(socket) == MI_FAILURE || smfi_opensocket(1) == MI_FAILURE)
		return 70;
	puts("listening");
	fflush(stdout);
	return smfi_main() == MI_SUCCESS ? 0 : 71;
}
