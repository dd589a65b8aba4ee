/*
 * swnic-guest: plays the guest of an emulator that has a virtio-net-pci device.
 *
 * main() only finds the command in the table below; `demo` is what runs without one.
 */
#include "guest/commands.h"
#include <glib.h>
#include <stdio.h>
#include <string.h>

typedef struct Command {
    const char *name, *summary;
    int (*run)(int argc, char **argv);
} Command;

static const Command commands[] = {
    {"demo", "take the guest onto the network and check every step (default)", demo_main},
    {"bench", "measure packets per second and the emulator's CPU time a packet", bench_main},
    {"tcp", "carry TCP between the guest and a back end of your choice, for tests", tcp_main},
    {"forward", "carry frames between a tap and the device, for the lab", forward_main},
};

static void print_help(void)
{
    g_autofree char *options = demo_help();
    printf("Usage: swnic-guest [COMMAND] [OPTION...]\n"
           "\n"
           "Plays the guest of an emulator: a virtio-net driver and a TCP/IP stack (lwIP) in\n"
           "user space, which reach the emulated PCI device over its qtest socket and share the\n"
           "guest's RAM with it. No CPU is emulated, and no root is needed.\n"
           "\n"
           "Commands (swnic-guest COMMAND --help tells more):\n");
    for (unsigned i = 0; i < G_N_ELEMENTS(commands); i++) {
        printf("  %-8s %s\n", commands[i].name, commands[i].summary);
    }
    printf("\n%s", options);
}

int main(int argc, char **argv)
{
    const char *word = argc > 1 ? argv[1] : "demo";
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0 || strcmp(word, "help") == 0) {
        print_help();
        return 0;
    }
    if (word[0] == '-' || argc < 2) {
        return demo_main(argc, argv);
    }
    for (unsigned i = 0; i < G_N_ELEMENTS(commands); i++) {
        if (strcmp(word, commands[i].name) == 0) {
            return commands[i].run(argc - 1, argv + 1);
        }
    }
    fprintf(stderr, "swnic-guest: unknown command '%s'; there is:", word);
    for (unsigned i = 0; i < G_N_ELEMENTS(commands); i++) {
        fprintf(stderr, " %s", commands[i].name);
    }
    fprintf(stderr, "\n");
    return 1;
}
