/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What a thread starts has the CPUs of its process, by whichever function it is executed: this
 * program starts itself, after fork and after vfork, and what is executed compares. And a thread's
 * name is the same to all who ask.
 *
 *     starts
 */
#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

#define MISSING 55

extern char **environ;
static char cpus[16], missing[] = "/nonexistent/program";

static int count_cpus(void)
{
	cpu_set_t set;

	CHECK(sched_getaffinity(0, sizeof(set), &set) == 0);
	return CPU_COUNT(&set);
}

static int execute(int how, char *program)
{
	char *argv[] = {program, "started", cpus, NULL};

	switch (how) {
	case 0:
		return execl(program, program, "started", cpus, NULL);
	case 1:
		return execlp(program, program, "started", cpus, NULL);
	case 2:
		return execle(program, program, "started", cpus, NULL, environ);
	case 3:
		return execv(program, argv);
	case 4:
		return execvp(program, argv);
	case 5:
		return execve(program, argv, environ);
	case 6:
		return execvpe(program, argv, environ);
	default:
		return syscall(SYS_execve, program, argv, environ);
	}
}

static int execute_in_child(int how, int is_vfork, char *program)
{
	int status = -1;
	pid_t child = is_vfork ? vfork() : fork();

	if (child == 0) {
		execute(how, program);
		/* Who did not become another program says something, as those do that vfork. */
		_exit(errno == ENOENT && write(STDERR_FILENO, "", 0) == 0 ? MISSING : 99);
	}
	CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status));
	return WEXITSTATUS(status);
}

static void *start(void *program)
{
	for (int how = 0; how < 8; how++)
		for (int is_vfork = 0; is_vfork < 2; is_vfork++) {
			CHECK(execute_in_child(how, is_vfork, program) == 0);
			CHECK(execute_in_child(how, is_vfork, missing) == MISSING);
		}
	/* It is its process's still. */
	CHECK(count_cpus() == atoi(cpus));
	return NULL;
}

static void *name(void *own)
{
	char of_process[17] = "", told[17] = "", sixteen[] = "0123456789abcdef";

	CHECK(pthread_getname_np(pthread_self(), told, 16) == 0 && strcmp(told, own) == 0);
	CHECK(prctl(PR_GET_NAME, told) == 0 && strcmp(told, own) == 0);
	CHECK(prctl(PR_SET_NAME, "by prctl") == 0);
	CHECK(pthread_getname_np(pthread_self(), told, 16) == 0 && strcmp(told, "by prctl") == 0);
	CHECK(pthread_setname_np(pthread_self(), "by pthread") == 0);
	CHECK(prctl(PR_GET_NAME, told) == 0 && strcmp(told, "by pthread") == 0);
	CHECK(pthread_setname_np(pthread_self(), sixteen) == ERANGE);
	CHECK(pthread_getname_np(pthread_self(), told, 15) == ERANGE);
	CHECK(prctl(PR_SET_NAME, sixteen) == 0);
	CHECK(prctl(PR_GET_NAME, told) == 0 && strcmp(told, "0123456789abcde") == 0);
	CHECK(prctl(PR_GET_NAME, NULL) == -1 && errno == EFAULT);

	/* The others' names have stayed. */
	FILE *file = fopen("/proc/self/comm", "r");
	CHECK(file && fgets(of_process, sizeof(of_process), file));
	of_process[strcspn(of_process, "\n")] = 0;
	CHECK(strcmp(of_process, own) == 0);
	if (file)
		fclose(file);
	return NULL;
}

int main(int argc, char **argv)
{
	char own[17] = "";

	if (argc > 2)
		return count_cpus() != atoi(argv[2]);
	snprintf(cpus, sizeof(cpus), "%d", count_cpus());
	CHECK(prctl(PR_GET_NAME, own) == 0);
	join(create(name, own));
	join(create(name, own));
	join(create(start, argv[0]));
	return failures > 99 ? 99 : failures;
}
