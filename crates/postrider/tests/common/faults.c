/* System calls that fail, or are left out, on command: see faults.rs. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The error that a call must fail with, 0 for none, -1 for a write that claims too much. */
static int ordered(const char *call) {
    const char *dir = getenv("POSTRIDER_TEST_FAULTS");
    char path[4096], text[64] = {0}, thread[32] = {0}, own[17] = {0};
    if (!dir) return 0;
    snprintf(path, sizeof path, "%s/%s", dir, call);
    int fd = syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
    if (fd < 0) return 0;
    syscall(SYS_read, fd, text, sizeof text - 1);
    syscall(SYS_close, fd);
    int error = strncmp(text, "more", 4) == 0 ? -1 : atoi(text);
    sscanf(text, "%*s %31s", thread);
    prctl(PR_GET_NAME, own);
    return strcmp(thread, "*") == 0 || strcmp(thread, own) == 0 ? error : 0;
}

/* Is the sync of this file to be left out? */
static int skipped(const char *call, int fd) {
    const char *dir = getenv("POSTRIDER_TEST_FAULTS");
    char order[4096], text[256] = {0}, pattern[240] = {0}, link[64], path[4096] = {0};
    if (!dir) return 0;
    snprintf(order, sizeof order, "%s/%s", dir, call);
    int from = syscall(SYS_openat, AT_FDCWD, order, O_RDONLY | O_CLOEXEC, 0);
    if (from < 0) return 0;
    syscall(SYS_read, from, text, sizeof text - 1);
    syscall(SYS_close, from);
    if (sscanf(text, "skip %239s", pattern) != 1) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    if (readlink(link, path, sizeof path - 1) < 0) return 0;
    if (pattern[0] == '*') return strstr(path, pattern + 1) != NULL;
    size_t length = strlen(path), end = strlen(pattern);
    return length >= end && strcmp(path + length - end, pattern) == 0;
}

int fdatasync(int fd) {
    if (skipped("fdatasync", fd)) return 0;
    int error = ordered("fdatasync");
    if (error > 0) { errno = error; return -1; }
    return syscall(SYS_fdatasync, fd);
}

int fsync(int fd) {
    if (skipped("fsync", fd)) return 0;
    int error = ordered("fsync");
    if (error > 0) { errno = error; return -1; }
    return syscall(SYS_fsync, fd);
}

/* Must this read fail? The order has the error, from which offset on, and how the path of the file ends. */
static int unreadable(int fd, size_t length, off64_t offset) {
    const char *dir = getenv("POSTRIDER_TEST_FAULTS");
    char order[4096], text[256] = {0}, name[200] = {0}, link[64], path[4096] = {0};
    long long from = 0;
    int error = 0;
    if (!dir) return 0;
    snprintf(order, sizeof order, "%s/pread", dir);
    int at = syscall(SYS_openat, AT_FDCWD, order, O_RDONLY | O_CLOEXEC, 0);
    if (at < 0) return 0;
    syscall(SYS_read, at, text, sizeof text - 1);
    syscall(SYS_close, at);
    if (sscanf(text, "%d %lld %199s", &error, &from, name) != 3) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    if (readlink(link, path, sizeof path - 1) < 0) return 0;
    size_t here = strlen(path), end = strlen(name);
    int is_it = here >= end && strcmp(path + here - end, name) == 0;
    return is_it && offset + (off64_t)length > from ? error : 0;
}

ssize_t pread64(int fd, void *bytes, size_t length, off64_t offset) {
    int error = unreadable(fd, length, offset);
    if (error > 0) { errno = error; return -1; }
    return syscall(SYS_pread64, fd, bytes, length, offset);
}

ssize_t pwrite64(int fd, const void *bytes, size_t length, off64_t offset) {
    int error = ordered("pwrite");
    if (error > 0) { errno = error; return -1; }
    ssize_t written = syscall(SYS_pwrite64, fd, bytes, length, offset);
    return error < 0 ? written + 1 : written;
}
