// Preloaded into a process to record, in order, what it does to the files below WINDROW_SHIM_ROOT, and what it says on
// standard output. power.rs replays the record (WINDROW_SHIM_LOG) up to a point at which the power fails.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int out = -1;
static char root[4096];
static size_t root_len;

__attribute__((constructor)) static void begin(void) {
    const char *log = getenv("WINDROW_SHIM_LOG"), *dir = getenv("WINDROW_SHIM_ROOT");
    if (!log || !dir) return;
    snprintf(root, sizeof root, "%s", dir);
    root_len = strlen(root);
    out = (int)syscall(SYS_openat, AT_FDCWD, log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
}

static void put(const void *bytes, size_t len) {
    for (const char *at = bytes; len > 0;) {
        ssize_t n = syscall(SYS_write, out, at, len);
        if (n <= 0) abort();
        at += n, len -= (size_t)n;
    }
}

// op, length of path, length of data, offset; then path and data.
static void record(char op, const char *path, uint64_t offset, const void *data, uint64_t len) {
    uint64_t head[3] = {strlen(path), len, offset};
    put(&op, 1), put(head, sizeof head), put(path, head[0]), put(data, len);
}

static const char *below(const char *path) {
    if (out < 0 || strncmp(path, root, root_len) != 0) return NULL;
    return path[root_len] == '/' ? path + root_len + 1 : path[root_len] == 0 ? "" : NULL;
}

static const char *name_of(int fd, char name[4096]) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = out < 0 ? -1 : readlink(link, name, 4095);
    if (n < 0) return NULL;
    name[n] = 0;
    return below(name);
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define FD(op, call, offset, data, len)                       \
    char name[4096];                                          \
    pthread_mutex_lock(&lock);                                \
    const char *path = name_of(fd, name);                     \
    __typeof__(call) done = call;                             \
    if (path && done >= 0) record(op, path, offset, data, len); \
    pthread_mutex_unlock(&lock);                              \
    return done;

ssize_t write(int fd, const void *bytes, size_t count) {
    if (fd == 1 && out >= 0) {
        pthread_mutex_lock(&lock);
        record('A', "", 0, bytes, count);
        ssize_t said = REAL(write)(fd, bytes, count);
        pthread_mutex_unlock(&lock);
        return said;
    }
    off_t at = lseek(fd, 0, SEEK_CUR);
    FD('W', REAL(write)(fd, bytes, count), (uint64_t)at, bytes, (uint64_t)done)
}

ssize_t pwrite64(int fd, const void *bytes, size_t count, off64_t at) {
    FD('W', REAL(pwrite64)(fd, bytes, count, at), (uint64_t)at, bytes, (uint64_t)done)
}

int ftruncate64(int fd, off64_t size) { FD('T', REAL(ftruncate64)(fd, size), (uint64_t)size, "", 0) }
int fsync(int fd) { FD('S', REAL(fsync)(fd), 0, "", 0) }
int fdatasync(int fd) { FD('S', REAL(fdatasync)(fd), 0, "", 0) }

int open64(const char *file, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    mode_t mode = flags & O_CREAT ? va_arg(rest, mode_t) : 0;
    va_end(rest);
    const char *path = below(file);
    pthread_mutex_lock(&lock);
    struct stat before;
    int existed = path && stat(file, &before) == 0;
    int fd = REAL(open64)(file, flags, mode);
    if (path && fd >= 0 && !existed) record('C', path, 0, "", 0);
    if (path && fd >= 0 && existed && flags & O_TRUNC) record('T', path, 0, "", 0);
    pthread_mutex_unlock(&lock);
    return fd;
}

#define PATH(op, file, call, data, len)                            \
    const char *path = below(file);                                \
    pthread_mutex_lock(&lock);                                     \
    int done = call;                                               \
    if (path && done == 0) record(op, path, 0, data, (uint64_t)(len)); \
    pthread_mutex_unlock(&lock);                                   \
    return done;

int mkdir(const char *file, mode_t mode) { PATH('D', file, REAL(mkdir)(file, mode), "", 0) }
int unlink(const char *file) { PATH('U', file, REAL(unlink)(file), "", 0) }
int rename(const char *file, const char *to) {
    const char *target = below(to);
    PATH('R', file, REAL(rename)(file, to), target ? target : "", target ? strlen(target) : 0)
}
