/* The formatter of sendmail beside that of the C library, in the same program: `METHOD LINES` prints the seconds and the last line. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

int sm_snprintf(char *, size_t, const char *, ...);

/* The library's texts of errors ask for it, and no line does. */
const char *ldap_err2string(int error)
{
    (void)error;
    return "";
}

static char line[512];
/* The compiler may not leave out a line that nobody reads, nor know what is in it. */
static const char *volatile kept;
static const char *volatile stamp = "2026-11-21T11:42:59.123456Z";
static const char *volatile id = "01KA4T9W3M8Z";
static const char *volatile to = "recipient@sink.test";
static const char *volatile relay = "mx.sink.test[127.0.0.1]:25";
static const char *volatile text = "2.0.0 Ok: \\\"queued\\\"";
static volatile unsigned code = 250;

#define WRITE_LINES(format)                                                                              \
    for (unsigned long i = 0; i < lines; i++) {                                                          \
        format(line, sizeof line, "%s delivered id=%s to=<%s> relay=%s delay=%lums code=%u text=\"%s\"\n", \
               stamp, id, to, relay, i, code, text);                                                     \
        kept = line;                                                                                     \
    }

int main(int argc, char **argv)
{
    struct timespec begin, end;
    unsigned long lines = argc > 2 ? strtoul(argv[2], NULL, 10) : 0;

    if (lines == 0)
        return 64;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    if (strcmp(argv[1], "sm_snprintf") == 0) {
        WRITE_LINES(sm_snprintf)
    } else {
        WRITE_LINES(snprintf)
    }
    clock_gettime(CLOCK_MONOTONIC, &end);
    printf("%.9f %s", (double)(end.tv_sec - begin.tv_sec) + (double)(end.tv_nsec - begin.tv_nsec) / 1e9, line);
    return 0;
}
