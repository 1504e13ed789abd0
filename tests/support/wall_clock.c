/* A wall clock with an offset, for processes that start with LD_PRELOAD: the offset may change while they run.

   The file WALL_CLOCK_FILE holds the seconds as a 64-bit integer. Only CLOCK_REALTIME has the offset. A wait until a
   moment of that clock is as long as without it: a deadline later than 2001 is taken for one of the wall clock. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define FIRST_WALL_SECOND 1000000000

static const volatile int64_t zero = 0;
static const volatile int64_t *offset = &zero;

__attribute__((constructor)) static void open_offset(void) {
  const char *path = getenv("WALL_CLOCK_FILE");
  int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
  if (file < 0) return;
  void *found = mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
  if (found != MAP_FAILED) offset = found;
  close(file);
}

static void *next(const char *name, const char *version) {
  void *found = version ? dlvsym(RTLD_NEXT, name, version) : dlsym(RTLD_NEXT, name);
  if (!found) abort();
  return found;
}

/* The real function behind NAME, looked up once. */
#define REAL(name, version)                         \
  static __typeof__(&name) real;                    \
  if (!real) real = (__typeof__(&name))next(#name, version)

static const struct timespec *unshifted(const struct timespec *until, struct timespec *space) {
  if (!until || until->tv_sec < FIRST_WALL_SECOND) return until;
  *space = *until;
  space->tv_sec -= *offset;
  return space;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
  REAL(clock_gettime, NULL);
  int status = real(clock, now);
  if (!status && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += *offset;
  return status;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
  REAL(gettimeofday, NULL);
  int status = real(now, zone);
  if (!status) now->tv_sec += *offset;
  return status;
}

time_t time(time_t *found) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (found) *found = now.tv_sec;
  return now.tv_sec;
}

int clock_nanosleep(clockid_t clock, int flags, const struct timespec *until, struct timespec *left) {
  REAL(clock_nanosleep, NULL);
  struct timespec space;
  int wall = clock == CLOCK_REALTIME && (flags & TIMER_ABSTIME);
  return real(clock, flags, wall ? unshifted(until, &space) : until, left);
}

int pthread_cond_timedwait(pthread_cond_t *restrict cond, pthread_mutex_t *restrict mutex,
                           const struct timespec *restrict until) {
  REAL(pthread_cond_timedwait, "GLIBC_2.3.2"); /* an older one is there too */
  struct timespec space;
  return real(cond, mutex, unshifted(until, &space));
}

int pthread_cond_clockwait(pthread_cond_t *restrict cond, pthread_mutex_t *restrict mutex, clockid_t clock,
                           const struct timespec *restrict until) {
  REAL(pthread_cond_clockwait, NULL);
  struct timespec space;
  return real(cond, mutex, clock, unshifted(until, &space));
}

int pthread_mutex_timedlock(pthread_mutex_t *restrict mutex, const struct timespec *restrict until) {
  REAL(pthread_mutex_timedlock, NULL);
  struct timespec space;
  return real(mutex, unshifted(until, &space));
}

int sem_timedwait(sem_t *restrict semaphore, const struct timespec *restrict until) {
  REAL(sem_timedwait, NULL);
  struct timespec space;
  return real(semaphore, unshifted(until, &space));
}

int sem_clockwait(sem_t *restrict semaphore, clockid_t clock, const struct timespec *restrict until) {
  REAL(sem_clockwait, NULL);
  struct timespec space;
  return real(semaphore, clock, unshifted(until, &space));
}

long syscall(long number, ...) {
  REAL(syscall, NULL);
  long words[6];
  struct timespec space;
  va_list list;
  va_start(list, number);
  for (int place = 0; place < 6; place++) words[place] = va_arg(list, long);
  va_end(list);
  if (number == SYS_futex && (words[1] & FUTEX_CLOCK_REALTIME))
    words[3] = (long)unshifted((const struct timespec *)words[3], &space);
  return real(number, words[0], words[1], words[2], words[3], words[4], words[5]);
}
