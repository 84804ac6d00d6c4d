/* SPDX-License-Identifier: MIT
 *
 * A process that was killed and does not end, as a disk or a device may hold one in the kernel: it
 * stands still before its end, with all its memory, until the process that traces it lets it go on
 * or is killed. */
#ifndef TESTS_UNIT_JOB_TRACE_H
#define TESTS_UNIT_JOB_TRACE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

/* The tracer. Skips the test where tracing is not allowed. */
static inline pid_t trace_begin(pid_t pid)
{
    int ready[2];
    char byte = 0;
    assert_int_equal(pipe(ready), 0);
    const pid_t tracer = fork();
    if (tracer == 0) {
        byte = ptrace(PTRACE_SEIZE, pid, 0, PTRACE_O_TRACEEXIT) ? 'n' : 'y';
        if (write(ready[1], &byte, 1) == 1 && byte == 'y')
            pause();
        _exit(0);
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    close(ready[1]);
    if (byte == 'y')
        return tracer;
    waitpid(tracer, NULL, 0);
    skip();
    return -1;
}

static inline void trace_end(pid_t tracer)
{
    kill(tracer, SIGKILL);
    waitpid(tracer, NULL, 0);
}

#endif
