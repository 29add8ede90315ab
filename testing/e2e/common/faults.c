/* System calls that fail, or are left out, on command: see faults.rs. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Does the path of a descriptor contain this, behind a `*`, or end so? */
static int is_at(const char *pattern, int fd) {
    char link[64], path[4096] = {0};
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    if (readlink(link, path, sizeof path - 1) < 0) return 0;
    if (pattern[0] == '*') return strstr(path, pattern + 1) != NULL;
    size_t length = strlen(path), end = strlen(pattern);
    return length >= end && strcmp(path + length - end, pattern) == 0;
}

/* The error that a call must fail with, 0 for none, -1 for a write that claims too much. */
static int ordered(const char *call, int fd) {
    const char *dir = getenv("POSTRIDER_TEST_FAULTS");
    char path[4096], text[256] = {0}, thread[32] = {0}, pattern[200] = {0}, own[17] = {0};
    if (!dir) return 0;
    snprintf(path, sizeof path, "%s/%s", dir, call);
    int order = syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
    if (order < 0) return 0;
    syscall(SYS_read, order, text, sizeof text - 1);
    syscall(SYS_close, order);
    int error = strncmp(text, "more", 4) == 0 ? -1 : atoi(text);
    int words = sscanf(text, "%*s %31s %199s", thread, pattern);
    prctl(PR_GET_NAME, own);
    if (words == 2 && !is_at(pattern, fd)) return 0;
    return strcmp(thread, "*") == 0 || strcmp(thread, own) == 0 ? error : 0;
}

/* Is the sync of this file to be left out? */
static int skipped(const char *call, int fd) {
    const char *dir = getenv("POSTRIDER_TEST_FAULTS");
    char order[4096], text[256] = {0}, pattern[240] = {0};
    if (!dir) return 0;
    snprintf(order, sizeof order, "%s/%s", dir, call);
    int from = syscall(SYS_openat, AT_FDCWD, order, O_RDONLY | O_CLOEXEC, 0);
    if (from < 0) return 0;
    syscall(SYS_read, from, text, sizeof text - 1);
    syscall(SYS_close, from);
    return sscanf(text, "skip %239s", pattern) == 1 && is_at(pattern, fd);
}

int fdatasync(int fd) {
    if (skipped("fdatasync", fd)) return 0;
    int error = ordered("fdatasync", fd);
    if (error > 0) { errno = error; return -1; }
    return syscall(SYS_fdatasync, fd);
}

int fsync(int fd) {
    if (skipped("fsync", fd)) return 0;
    int error = ordered("fsync", fd);
    if (error > 0) { errno = error; return -1; }
    return syscall(SYS_fsync, fd);
}

/* Must this read fail? The order has the error, from which offset on, and how the path of the file ends. */
static int unreadable(int fd, size_t length, off64_t offset) {
    const char *dir = getenv("POSTRIDER_TEST_FAULTS");
    char order[4096], text[256] = {0}, name[200] = {0};
    long long from = 0;
    int error = 0;
    if (!dir) return 0;
    snprintf(order, sizeof order, "%s/pread", dir);
    int at = syscall(SYS_openat, AT_FDCWD, order, O_RDONLY | O_CLOEXEC, 0);
    if (at < 0) return 0;
    syscall(SYS_read, at, text, sizeof text - 1);
    syscall(SYS_close, at);
    if (sscanf(text, "%d %lld %199s", &error, &from, name) != 3) return 0;
    return is_at(name, fd) && offset + (off64_t)length > from ? error : 0;
}

ssize_t pread64(int fd, void *bytes, size_t length, off64_t offset) {
    int error = unreadable(fd, length, offset);
    if (error > 0) { errno = error; return -1; }
    return syscall(SYS_pread64, fd, bytes, length, offset);
}

ssize_t pwrite64(int fd, const void *bytes, size_t length, off64_t offset) {
    int error = ordered("pwrite", fd);
    if (error > 0) { errno = error; return -1; }
    ssize_t written = syscall(SYS_pwrite64, fd, bytes, length, offset);
    return error < 0 ? written + 1 : written;
}

/* Standard error and pipes of the daemon are left alone: an order names a path. */
ssize_t write(int fd, const void *bytes, size_t length) {
    int error = ordered("write", fd);
    if (error > 0) { errno = error; return -1; }
    return syscall(SYS_write, fd, bytes, length);
}

int accept4(int fd, struct sockaddr *address, socklen_t *length, int flags) {
    int error = ordered("accept4", fd);
    if (error > 0) { errno = error; return -1; }
    return syscall(SYS_accept4, fd, address, length, flags);
}
