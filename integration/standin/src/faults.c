// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

#include "faults.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/file.h>
#include <sys/select.h>
#include <sys/stat.h>

// A rule as its line has it.
struct rule {
	struct fault fault;
	long pid, nspid; // 0: any
	char comm[32];
	unsigned nth, times; // 0: all
};

struct counts {
	uint64_t file[3]; // device, inode and time of the rules that are counted
	unsigned matched[64]; // by number of the line
};

enum { MAX_RULES = sizeof((struct counts *)0)->matched / sizeof(unsigned) };

// innermost returns the PID that the process has in its own PID namespace.
static long innermost(pid_t pid)
{
	char path[64], line[256];
	snprintf(path, sizeof path, "/proc/%d/status", pid);
	CLEAN_FILE FILE *f = fopen(path, "re");
	while (f && fgets(line, sizeof line, f)) {
		char *last = strrchr(line, '\t');
		if (!strncmp(line, "NSpid:", 6) && last)
			return atol(last + 1);
	}
	return 0;
}

static void comm_of(pid_t pid, char comm[32])
{
	char path[64];
	snprintf(path, sizeof path, "/proc/%d/comm", pid);
	if (!read_line(path, comm, 32))
		snprintf(comm, 32, "-");
	for (char *c = comm; *c; c++) // a word, in rules and in the log
		if (*c == ' ')
			*c = '_';
}

static void parse_word(struct rule *r, const char *word)
{
	const char *value = strchr(word, '=');
	size_t n = value ? (size_t)(value++ - word) : strlen(word);
#define IS(name) (n == sizeof(name) - 1 && !strncmp(word, name, n))
	if (!value) {
		r->fault.hang |= IS("hang");
		r->fault.crash |= IS("crash");
		r->fault.fail |= IS("fail");
	} else if (IS("pid")) {
		r->pid = atol(value);
	} else if (IS("nspid")) {
		r->nspid = atol(value);
	} else if (IS("comm")) {
		snprintf(r->comm, sizeof r->comm, "%s", value);
	} else if (IS("nth")) {
		r->nth = (unsigned)atoi(value);
	} else if (IS("times")) {
		r->times = (unsigned)atoi(value);
	} else if (IS("error")) {
		r->fault.error = (unsigned)atoi(value);
	} else if (IS("delay")) {
		r->fault.delay_ms = (unsigned)atoi(value);
	} else if (IS("when")) {
		r->fault.when = !strcmp(value, "after")    ? FAULT_AFTER
				: !strcmp(value, "during") ? FAULT_DURING
							   : FAULT_BEFORE;
	}
#undef IS
}

static bool parse_rule(char *line, struct rule *r)
{
	char *save = NULL;
	line[strcspn(line, "\n#")] = 0;
	const char *word = strtok_r(line, " \t", &save);
	*r = (struct rule){.fault.when = FAULT_BEFORE};
	if (!word)
		return false;
	snprintf(r->fault.op, sizeof r->fault.op, "%s", word);
	while ((word = strtok_r(NULL, " \t", &save)))
		parse_word(r, word);
	return true;
}

// everyday tells whether it is a call that programs make all the time: those
// are failed by name only.
static bool everyday(const char *op)
{
	static const char *const ops[] = {"create", "map", "unmap", "export", "import", "copy"};
	for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
		if (!strcmp(ops[i], op))
			return true;
	return false;
}

static bool applies(const struct rule *r, const char *op, pid_t pid)
{
	char comm[32];
	if (strcmp(r->fault.op, op) != 0 && (strcmp(r->fault.op, "any") != 0 || everyday(op)))
		return false;
	if (r->pid && r->pid != pid)
		return false;
	if (r->nspid && r->nspid != innermost(pid))
		return false;
	if (!r->comm[0])
		return true;
	comm_of(pid, comm);
	return !strcmp(comm, r->comm);
}

// counts_open reads the counts of the rules, under a lock that lasts until the
// descriptor is closed. Rules that were written anew start at zero.
static int counts_open(FILE *rules, struct counts *c)
{
	struct stat s;
	char path[PATH_SIZE];
	machine_path(path, "faults.counts");
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
	if (fd < 0 || flock(fd, LOCK_EX) != 0 || fstat(fileno(rules), &s) != 0)
		return fd;
	uint64_t file[3] = {s.st_dev, s.st_ino,
			    (uint64_t)s.st_mtim.tv_sec * 1000000000 + (uint64_t)s.st_mtim.tv_nsec};
	if (!read_all(fd, c, sizeof *c, 0) || memcmp(c->file, file, sizeof file) != 0) {
		*c = (struct counts){0};
		memcpy(c->file, file, sizeof file);
	}
	return fd;
}

// due counts a call that a rule matches and tells whether it is one to fail.
static bool due(const struct rule *r, unsigned *matched)
{
	++*matched;
	return (!r->nth || *matched == r->nth) && (!r->times || *matched <= r->times);
}

struct fault fault_find(const char *op, pid_t pid)
{
	char path[PATH_SIZE], line[512];
	struct fault found = {.when = FAULT_NONE};
	struct counts c = {0};
	machine_path(path, "faults");
	CLEAN_FILE FILE *f = fopen(path, "re");
	if (!f)
		return found;
	CLEAN_FD int fd = counts_open(f, &c);
	for (int i = 0; i < MAX_RULES && found.when == FAULT_NONE; i++) {
		struct rule r;
		long start = ftell(f);
		if (!fgets(line, sizeof line, f))
			break;
		if (!parse_rule(line, &r) || !applies(&r, op, pid) || !due(&r, &c.matched[i]))
			continue;
		found = r.fault;
		found.start = start;
	}
	if (fd >= 0)
		write_all(fd, &c, sizeof c, 0);
	return found;
}

// still_hangs tells whether the line that says so is still there.
static bool still_hangs(const struct fault *f)
{
	char path[PATH_SIZE], line[512];
	struct rule r;
	machine_path(path, "faults");
	CLEAN_FILE FILE *file = fopen(path, "re");
	return file && fseek(file, f->start, SEEK_SET) == 0 && fgets(line, sizeof line, file) &&
	       parse_rule(line, &r) && r.fault.hang && !strcmp(r.fault.op, f->op);
}

/* A process that dies hangs up first; that it is gone can be seen when the driver
 * has taken its memory apart. */
static void crash(void)
{
	for (int fd = STDERR_FILENO + 1; fd < FD_SETSIZE; fd++)
		close(fd);
	sleep_us(100000);
	kill(getpid(), SIGKILL);
}

int fault_apply(const struct fault *f, enum fault_when now)
{
	if (f->when != now)
		return 0;
	if (f->delay_ms)
		sleep_us(f->delay_ms * 1000);
	while (f->hang && still_hangs(f))
		sleep_us(10000);
	if (f->crash)
		crash();
	return (int)f->error;
}

void call_log(const char *op, pid_t pid, int result)
{
	char path[PATH_SIZE], line[256], comm[32], end[32] = "begin";
	machine_path(path, "calls");
	CLEAN_FD int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
	comm_of(pid, comm);
	if (result >= 0)
		snprintf(end, sizeof end, "result=%d", result);
	int n = snprintf(line, sizeof line, "%s pid=%d nspid=%ld comm=%s %s\n", op, pid, innermost(pid), comm, end);
	// One write, so that the lines of several callers stay whole.
	if (fd >= 0 && n > 0 && write(fd, line, (size_t)n) < 0)
		return;
}
