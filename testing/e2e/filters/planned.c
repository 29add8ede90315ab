/*
 * A filter on Debian's libmilter that does what a plan says, and notes what it is told.
 *
 *   planned SOCKET PLAN NOTES
 *
 * The plan is read anew at each callback. Its lines are words separated by tabs, with \r, \n, \t, \\ and \xHH in them:
 *
 *   STAGE accept | reject | tempfail | discard | skip
 *   STAGE reply CODE ENHANCED TEXT...     several texts are several lines; "-" is no enhanced code
 *   eom   add NAME VALUE
 *   eom   insert INDEX NAME VALUE
 *   eom   change INDEX NAME VALUE
 *   eom   delete INDEX NAME
 *   eom   body TEXT
 *   eom   fill COUNT                      as many lines of 64 octets as a piece of a new body
 *   eom   to ADDRESS [PARAMETERS]
 *   eom   not-to ADDRESS
 *   eom   from ADDRESS [PARAMETERS]
 *   eom   quarantine REASON
 *   eom   progress
 *   any   space                           values keep the space behind the colon; only when a connection begins
 *   any   macros STAGE NAMES              as above; the number of a stage
 *
 * A stage is connect, helo, mail, rcpt, data, header, eoh, body, eom or unknown; "rcpt=ADDRESS" and "header=NAME" are those
 * with this argument only. "listening" on standard output says that it does.
 */
#include <libmilter/mfapi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WORDS_MAX 40
#define LINE_MAX_BYTES 65536

static const char *plan_path, *notes_path;
static pthread_mutex_t notes_lock = PTHREAD_MUTEX_INITIALIZER;

struct state {
	unsigned long long hash;
	unsigned long bytes;
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

static void put(FILE *file, const char *text)
{
	for (; *text; text++) {
		unsigned char byte = *text;
		if (byte < ' ' || byte == '\\' || byte >= 127)
			fprintf(file, "\\x%02x", byte);
		else
			fputc(byte, file);
	}
}

/* Notes a line: what happened, and words up to NULL. */
static void note(const char *what, const char **words)
{
	FILE *file;
	pthread_mutex_lock(&notes_lock);
	file = fopen(notes_path, "a");
	if (file != NULL) {
		fputs(what, file);
		for (; *words; words++) {
			fputc('\t', file);
			put(file, *words);
		}
		fputc('\n', file);
		fclose(file);
	}
	pthread_mutex_unlock(&notes_lock);
}

/* Notes the macros of a stage that have a value. */
static void note_macros(SMFICTX *ctx, const char *stage, const char *const *names)
{
	for (; *names; names++) {
		const char *value = smfi_getsymval(ctx, (char *)*names);
		const char *words[] = { stage, *names, value, NULL };
		if (value != NULL)
			note("macro", words);
	}
}

static void unescape(char *text)
{
	char *out = text;
	for (; *text; text++) {
		if (*text != '\\') {
			*out++ = *text;
			continue;
		}
		text++;
		switch (*text) {
		case 'n': *out++ = '\n'; break;
		case 'r': *out++ = '\r'; break;
		case 't': *out++ = '\t'; break;
		case 'x': {
			char digits[3] = { text[1], text[2], 0 };
			*out++ = (char)strtoul(digits, NULL, 16);
			text += 2;
			break;
		}
		default: *out++ = *text;
		}
	}
	*out = 0;
}

static char **split(char *line)
{
	static __thread char *words[WORDS_MAX + 1];
	int count = 0;
	memset(words, 0, sizeof words);
	line[strcspn(line, "\n")] = 0;
	while (count < WORDS_MAX && line != NULL) {
		char *word = strsep(&line, "\t");
		unescape(word);
		words[count++] = word;
	}
	return words;
}

static void failed(const char *what, int result)
{
	const char *words[] = { what, NULL };
	if (result != MI_SUCCESS)
		note("failed", words);
}

static void fill(SMFICTX *ctx, unsigned long lines)
{
	char *body = malloc(lines * 64);
	unsigned long at;
	for (at = 0; at < lines; at++) {
		memset(body + at * 64, 'a' + (char)(at % 26), 62);
		memcpy(body + at * 64 + 62, "\r\n", 2);
	}
	failed("fill", smfi_replacebody(ctx, (unsigned char *)body, (int)(lines * 64)));
	free(body);
}

static void edit(SMFICTX *ctx, char **word)
{
	const char *verb = word[1];
	if (strcmp(verb, "add") == 0)
		failed(verb, smfi_addheader(ctx, word[2], word[3] ? word[3] : ""));
	else if (strcmp(verb, "insert") == 0)
		failed(verb, smfi_insheader(ctx, atoi(word[2]), word[3], word[4] ? word[4] : ""));
	else if (strcmp(verb, "change") == 0)
		failed(verb, smfi_chgheader(ctx, word[3], atoi(word[2]), word[4] ? word[4] : ""));
	else if (strcmp(verb, "delete") == 0)
		failed(verb, smfi_chgheader(ctx, word[3], atoi(word[2]), NULL));
	else if (strcmp(verb, "body") == 0)
		failed(verb, smfi_replacebody(ctx, (unsigned char *)word[2], (int)strlen(word[2])));
	else if (strcmp(verb, "fill") == 0)
		fill(ctx, strtoul(word[2], NULL, 10));
	else if (strcmp(verb, "to") == 0 && word[3])
		failed(verb, smfi_addrcpt_par(ctx, word[2], word[3]));
	else if (strcmp(verb, "to") == 0)
		failed(verb, smfi_addrcpt(ctx, word[2]));
	else if (strcmp(verb, "not-to") == 0)
		failed(verb, smfi_delrcpt(ctx, word[2]));
	else if (strcmp(verb, "from") == 0)
		failed(verb, smfi_chgfrom(ctx, word[2], word[3]));
	else if (strcmp(verb, "quarantine") == 0)
		failed(verb, smfi_quarantine(ctx, word[2]));
	else if (strcmp(verb, "progress") == 0)
		failed(verb, smfi_progress(ctx));
}

static sfsistat verdict(SMFICTX *ctx, char **word)
{
	const char *verb = word[1];
	if (strcmp(verb, "accept") == 0)
		return SMFIS_ACCEPT;
	if (strcmp(verb, "reject") == 0)
		return SMFIS_REJECT;
	if (strcmp(verb, "tempfail") == 0)
		return SMFIS_TEMPFAIL;
	if (strcmp(verb, "discard") == 0)
		return SMFIS_DISCARD;
	if (strcmp(verb, "skip") == 0)
		return SMFIS_SKIP;
	if (strcmp(verb, "reply") == 0) {
		char *enhanced = strcmp(word[3], "-") == 0 ? NULL : word[3];
		if (word[4] && word[5])
			failed(verb, smfi_setmlreply(ctx, word[2], enhanced, word[4], word[5], word[6], word[7], (char *)NULL));
		else
			failed(verb, smfi_setreply(ctx, word[2], enhanced, word[4]));
		return word[2][0] == '4' ? SMFIS_TEMPFAIL : SMFIS_REJECT;
	}
	return SMFIS_CONTINUE;
}

/* Does what the plan has for a stage, whose argument may be NULL; the last verdict counts. */
static sfsistat act(SMFICTX *ctx, const char *stage, const char *argument)
{
	static __thread char line[LINE_MAX_BYTES];
	sfsistat result = SMFIS_CONTINUE;
	char of_argument[1024];
	FILE *plan = fopen(plan_path, "r");
	snprintf(of_argument, sizeof of_argument, "%s=%s", stage, argument ? argument : "");
	while (plan != NULL && fgets(line, sizeof line, plan) != NULL) {
		char **words = split(line);
		sfsistat one;
		if (words[1] == NULL || (strcmp(words[0], stage) != 0 && strcmp(words[0], of_argument) != 0))
			continue;
		one = verdict(ctx, words);
		if (one != SMFIS_CONTINUE)
			result = one;
		else if (strcmp(stage, "eom") == 0)
			edit(ctx, words);
	}
	if (plan != NULL)
		fclose(plan);
	return result;
}

static sfsistat on_connect(SMFICTX *ctx, char *host, _SOCK_ADDR *address)
{
	static const char *const names[] = { "j", "_", "v", "{daemon_name}", "{daemon_addr}", "{daemon_port}", "{client_addr}",
		"{client_name}", "{client_ptr}", "{client_port}", "i", NULL };
	const char *family = address == NULL ? "unknown" : address->sa_family == AF_INET ? "inet" :
		address->sa_family == AF_INET6 ? "inet6" : "unix";
	const char *words[] = { host, family, NULL };
	note("connect", words);
	note_macros(ctx, "connect", names);
	return act(ctx, "connect", host);
}

static sfsistat on_helo(SMFICTX *ctx, char *name)
{
	static const char *const names[] = { "{tls_version}", "{cipher}", "{cipher_bits}", "{cert_subject}", "{cert_issuer}", NULL };
	const char *words[] = { name, NULL };
	note("helo", words);
	note_macros(ctx, "helo", names);
	return act(ctx, "helo", name);
}

static sfsistat on_mail(SMFICTX *ctx, char **words)
{
	static const char *const names[] = { "{auth_type}", "{auth_authen}", "{auth_author}", "{auth_ssf}", "{mail_addr}",
		"{mail_host}", "{mail_mailer}", NULL };
	struct state *state = state_of(ctx);
	state->bytes = 0;
	state->hash = 14695981039346656037ULL;
	note("mail", (const char **)words);
	note_macros(ctx, "mail", names);
	return act(ctx, "mail", words[0]);
}

static sfsistat on_rcpt(SMFICTX *ctx, char **words)
{
	static const char *const names[] = { "{rcpt_addr}", "{rcpt_host}", "{rcpt_mailer}", NULL };
	note("rcpt", (const char **)words);
	note_macros(ctx, "rcpt", names);
	return act(ctx, "rcpt", words[0]);
}

static sfsistat on_data(SMFICTX *ctx)
{
	const char *has_id = smfi_getsymval(ctx, "i") ? "i" : "no i";
	const char *words[] = { has_id, NULL };
	note("data", words);
	return act(ctx, "data", NULL);
}

static sfsistat on_header(SMFICTX *ctx, char *name, char *value)
{
	const char *words[] = { name, value, NULL };
	note("header", words);
	return act(ctx, "header", name);
}

static sfsistat on_eoh(SMFICTX *ctx)
{
	const char *words[] = { NULL };
	note("eoh", words);
	return act(ctx, "eoh", NULL);
}

static sfsistat on_body(SMFICTX *ctx, unsigned char *bytes, size_t length)
{
	struct state *state = state_of(ctx);
	size_t at;
	for (at = 0; at < length; at++)
		state->hash = (state->hash ^ bytes[at]) * 1099511628211ULL;
	state->bytes += length;
	return act(ctx, "body", NULL);
}

static sfsistat on_eom(SMFICTX *ctx)
{
	struct state *state = state_of(ctx);
	char bytes[32], hash[32];
	const char *words[] = { bytes, hash, smfi_getsymval(ctx, "i") ? "i" : "no i", NULL };
	snprintf(bytes, sizeof bytes, "%lu", state->bytes);
	snprintf(hash, sizeof hash, "%016llx", state->hash);
	note("eom", words);
	return act(ctx, "eom", NULL);
}

static sfsistat on_abort(SMFICTX *ctx)
{
	const char *words[] = { NULL };
	(void)ctx;
	note("abort", words);
	return SMFIS_CONTINUE;
}

static sfsistat on_close(SMFICTX *ctx)
{
	const char *words[] = { NULL };
	note("close", words);
	free(smfi_getpriv(ctx));
	smfi_setpriv(ctx, NULL);
	return SMFIS_CONTINUE;
}

static sfsistat on_unknown(SMFICTX *ctx, const char *line)
{
	const char *words[] = { line, NULL };
	note("unknown", words);
	return act(ctx, "unknown", NULL);
}

static sfsistat on_negotiate(SMFICTX *ctx, unsigned long actions, unsigned long steps, unsigned long reserved2,
	unsigned long reserved3, unsigned long *wanted_actions, unsigned long *wanted_steps, unsigned long *out2,
	unsigned long *out3)
{
	static __thread char line[LINE_MAX_BYTES];
	FILE *plan = fopen(plan_path, "r");
	(void)reserved2;
	(void)reserved3;
	*out2 = *out3 = 0;
	*wanted_actions = actions & 0xff;
	*wanted_steps = steps & SMFIP_SKIP;
	while (plan != NULL && fgets(line, sizeof line, plan) != NULL) {
		char **words = split(line);
		if (words[1] == NULL || strcmp(words[0], "any") != 0)
			continue;
		if (strcmp(words[1], "space") == 0)
			*wanted_steps |= steps & SMFIP_HDR_LEADSPC;
		if (strcmp(words[1], "macros") == 0)
			failed("macros", smfi_setsymlist(ctx, atoi(words[2]), words[3]));
	}
	if (plan != NULL)
		fclose(plan);
	return SMFIS_CONTINUE;
}

int main(int argc, char **argv)
{
	struct smfiDesc filter = {
		"planned", SMFI_VERSION, SMFIF_ADDHDRS | SMFIF_CHGBODY | SMFIF_ADDRCPT | SMFIF_DELRCPT | SMFIF_CHGHDRS |
			SMFIF_QUARANTINE | SMFIF_CHGFROM | SMFIF_ADDRCPT_PAR | SMFIF_SETSYMLIST,
		on_connect, on_helo, on_mail, on_rcpt, on_header, on_eoh, on_body, on_eom, on_abort, on_close, on_unknown,
		on_data, on_negotiate
	};
	char socket[512];
	if (argc != 4)
		return 64;
	plan_path = argv[2];
	notes_path = argv[3];
	snprintf(socket, sizeof socket, "unix:%s", argv[1]);
	if (smfi_register(filter) == MI_FAILURE || smfi_setconn(socket) == MI_FAILURE || smfi_opensocket(1) == MI_FAILURE)
		return 70;
	puts("listening");
	fflush(stdout);
	return smfi_main() == MI_SUCCESS ? 0 : 71;
}
