/* The commands of swnic-guest; main.c has them in one table. */
#ifndef GUEST_COMMANDS_H
#define GUEST_COMMANDS_H

/* Each gets its own name as argv[0] and returns the process's exit status. */
int demo_main(int argc, char **argv);
int bench_main(int argc, char **argv);
int tcp_main(int argc, char **argv);
int forward_main(int argc, char **argv);
/* What "demo --help" prints; g_free it. */
char *demo_help(void);

#endif
