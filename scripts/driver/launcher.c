/* Starts a program and measures it from outside: launcher MARK COMMAND [ARGUMENT...]
 *
 * The largest memory a child ever had includes that of the process it was forked from. So the launcher is small and
 * static, and Python does not do it itself. It prints one line:
 *   <milliseconds to the first line on stdout> <milliseconds to the end> <CPU milliseconds> <largest RSS in KiB>
 * MARK `line` ends the program by SIGTERM after its first line; MARK `end` waits until it ends by itself. The first
 * line is passed on to standard error.
 */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static double now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1e3 + t.tv_nsec / 1e6;
}

int main(int argc, char **argv) {
  int out[2];
  if (argc < 3 || pipe(out)) return 2;
  double start = now_ms(), line = -1;
  pid_t child = fork();
  if (child == 0) {
    dup2(out[1], 1);
    close(out[0]);
    close(out[1]);
    execv(argv[2], argv + 2);
    _exit(127);
  }
  close(out[1]);
  char buffer[4096];
  ssize_t got;
  while ((got = read(out[0], buffer, sizeof buffer)) > 0) {
    if (line >= 0 || !memchr(buffer, '\n', got)) continue;
    line = now_ms() - start;
    if (write(2, buffer, got) < 0) return 2;
    if (!strcmp(argv[1], "line")) kill(child, SIGTERM);
  }
  struct rusage used;
  int status;
  wait4(child, &status, 0, &used);
  double cpu = (used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1e3 + (used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e3;
  printf("%.2f %.2f %.2f %ld\n", line, now_ms() - start, cpu, used.ru_maxrss);
  return 0;
}
