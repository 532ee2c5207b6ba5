// Makes one call of the C library fail, so that tests see what a program does with it. For LD_PRELOAD.
//
//   FAULT_UNDER=FOLDER   only files below it count, and of renames and links the new name
//   FAULT_CALL=NAME      write, fsync, rename, symlink, open (to write), mkdir, unlink (of files and folders)
//   FAULT_AT=N           the N-th such call, from 1; 0: none
//   FAULT_HOW=...        the error's number; "short": half of the bytes; "kill": SIGKILL instead
//   FAULT_LOG=FILE       at the end gets the number of calls that counted
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

static atomic_long calls;

static int is_inside(const char* path) {
  const char* const folder = getenv("FAULT_UNDER");
  return folder != NULL && path != NULL && strncmp(path, folder, strlen(folder)) == 0;
}

static int is_file_inside(int file) {
  char link[64], path[PATH_MAX];
  snprintf(link, sizeof link, "/proc/self/fd/%d", file);
  const ssize_t length = readlink(link, path, sizeof path - 1);
  if (length < 0) return 0;
  path[length] = '\0';
  return is_inside(path);
}

enum { kGoOn, kFail, kShort };

// What is to become of this call.
static int verdict(const char* name, int counts) {
  const char* const call = getenv("FAULT_CALL");
  if (!counts || call == NULL || strcmp(call, name) != 0) return kGoOn;
  const char *const at = getenv("FAULT_AT"), *const how = getenv("FAULT_HOW");
  if (atomic_fetch_add(&calls, 1) + 1 != (at == NULL ? 0 : atol(at)) || how == NULL) return kGoOn;
  if (strcmp(how, "short") == 0) return kShort;
  if (strcmp(how, "kill") == 0) raise(SIGKILL);
  errno = atoi(how);
  return kFail;
}

__attribute__((destructor)) static void tell(void) {
  const char* const log = getenv("FAULT_LOG");
  FILE* const out = log == NULL ? NULL : fopen(log, "w");
  if (out == NULL) return;
  fprintf(out, "%ld\n", atomic_load(&calls));
  fclose(out);
}

#define NEXT(name) ((__typeof__(&(name)))dlsym(RTLD_NEXT, #name))

ssize_t write(int file, const void* bytes, size_t count) {
  const int what = verdict("write", is_file_inside(file));
  if (what == kFail) return -1;
  return NEXT(write)(file, bytes, what == kShort ? (count + 1) / 2 : count);
}

ssize_t pwrite64(int file, const void* bytes, size_t count, off64_t at) {
  const int what = verdict("write", is_file_inside(file));
  if (what == kFail) return -1;
  return NEXT(pwrite64)(file, bytes, what == kShort ? (count + 1) / 2 : count, at);
}

// The same on machines of 64 bits.
ssize_t pwrite(int file, const void* bytes, size_t count, off_t at) __attribute__((alias("pwrite64")));

ssize_t writev(int file, const struct iovec* parts, int count) {
  return verdict("write", is_file_inside(file)) == kFail ? -1 : NEXT(writev)(file, parts, count);
}

int fsync(int file) { return verdict("fsync", is_file_inside(file)) == kFail ? -1 : NEXT(fsync)(file); }

int rename(const char* from, const char* to) {
  return verdict("rename", is_inside(to)) == kFail ? -1 : NEXT(rename)(from, to);
}

int symlink(const char* target, const char* path) {
  return verdict("symlink", is_inside(path)) == kFail ? -1 : NEXT(symlink)(target, path);
}

int mkdir(const char* path, mode_t mode) {
  return verdict("mkdir", is_inside(path)) == kFail ? -1 : NEXT(mkdir)(path, mode);
}

int unlink(const char* path) {
  return verdict("unlink", is_inside(path)) == kFail ? -1 : NEXT(unlink)(path);
}

int unlinkat(int folder, const char* path, int flags) {
  const int inside = path[0] == '/' ? is_inside(path) : is_file_inside(folder);
  return verdict("unlink", inside) == kFail ? -1 : NEXT(unlinkat)(folder, path, flags);
}

static int opens_to_write(int flags) { return (flags & O_ACCMODE) != O_RDONLY; }

int open(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = flags & O_CREAT ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  if (verdict("open", opens_to_write(flags) && is_inside(path)) == kFail) return -1;
  return NEXT(open)(path, flags, mode);
}

int open64(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = flags & O_CREAT ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  if (verdict("open", opens_to_write(flags) && is_inside(path)) == kFail) return -1;
  return NEXT(open64)(path, flags, mode);
}

FILE* fopen64(const char* path, const char* mode) {
  if (verdict("open", strchr("wa", mode[0]) != NULL && is_inside(path)) == kFail) return NULL;
  return NEXT(fopen64)(path, mode);
}
