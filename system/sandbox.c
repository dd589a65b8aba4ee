/*
 * -sandbox: system calls that the emulator never needs are refused by the kernel once it is up.
 *
 * One row a group.  A refused call fails with EPERM (clone3 with ENOSYS, so that the C library
 * falls back to clone, whose flags a filter can see): a mistake of ours then is an error message,
 * not a crash.  Memory, files and sockets stay allowed: netdevs, chardevs and memory back ends
 * are made at run time too.
 */
#include <errno.h>
#include <sched.h>
#include <seccomp.h>
#include <string.h>
#include <sys/prctl.h>

#include "system.h"
#include "util/error.h"
#include "util/json.h"

typedef struct SandboxGroup {
    const char *name;
    bool deny_by_default;
    const char *calls[16];
} SandboxGroup;

static const SandboxGroup groups[] = {
    {"obsolete",
     true,
     {"reboot", "kexec_load", "swapon", "swapoff", "syslog", "mount", "umount2", "pivot_root",
      "init_module", "finit_module", "delete_module", "acct", "quotactl", "settimeofday",
      "ptrace"}},
    /* Off unless asked for: tap's scripts are processes. */
    {"spawn", false, {"fork", "vfork", "execve", "execveat"}},
    {"elevateprivileges",
     false,
     {"setuid", "setgid", "setpgid", "setsid", "setreuid", "setregid", "setresuid", "setresgid",
      "setfsuid", "setfsgid"}},
    {"resourcecontrol",
     false,
     {"setpriority", "sched_setparam", "sched_setscheduler", "sched_setaffinity"}},
};

/* Parses "on|off,group=allow|deny,…" into @deny, one a group.  *on: is there a sandbox at all? */
static gboolean parse(const char *text, bool *on, bool *deny, GError **errp)
{
    static const KeyvalOptions opts = {.implied_key = "enable", .flat = true};
    json_object *options = keyval_parse(text, &opts, NULL, errp);
    gboolean ok = options != NULL;

    if (!ok) {
        return FALSE;
    }
    *on = false;
    for (size_t i = 0; i < G_N_ELEMENTS(groups); i++) {
        deny[i] = groups[i].deny_by_default;
    }
    json_object_object_foreach(options, key, member)
    {
        const char *value = json_object_get_string(member);
        size_t i = 0;
        while (i < G_N_ELEMENTS(groups) && strcmp(key, groups[i].name)) {
            i++;
        }
        if (!ok) {
            break;
        }
        if (!strcmp(key, "enable")) {
            ok = parse_bool("sandbox", value, on, errp);
        } else if (i == G_N_ELEMENTS(groups)) {
            ok = error_set(errp,
                           "Parameter '%s' is unexpected, it is obsolete, spawn, "
                           "elevateprivileges or resourcecontrol",
                           key);
        } else if (strcmp(value, "allow") && strcmp(value, "deny")) {
            ok = error_set(errp, "Parameter '%s' expects allow or deny, not '%s'", key, value);
        } else {
            deny[i] = !strcmp(value, "deny");
        }
    }
    json_object_put(options);
    return ok;
}

gboolean sandbox_check(const char *text, GError **errp)
{
    bool deny[G_N_ELEMENTS(groups)], on;

    return parse(text, &on, deny, errp);
}

static int deny_group(scmp_filter_ctx filter, const SandboxGroup *group)
{
    int ret = 0;

    for (size_t i = 0; i < G_N_ELEMENTS(group->calls) && group->calls[i] && !ret; i++) {
        int number = seccomp_syscall_resolve_name(group->calls[i]);
        if (number != __NR_SCMP_ERROR) {
            ret = seccomp_rule_add(filter, SCMP_ACT_ERRNO(EPERM), number, 0);
        }
    }
    return ret;
}

/* A clone that is not a thread is a fork. */
static int deny_process_clone(scmp_filter_ctx filter)
{
    int ret = seccomp_rule_add(filter, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3), 0);

    return ret ? ret
               : seccomp_rule_add(filter, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(clone), 1,
                                  SCMP_A0(SCMP_CMP_MASKED_EQ, CLONE_THREAD, 0));
}

gboolean sandbox_enter(const char *text, GError **errp)
{
    bool deny[G_N_ELEMENTS(groups)], on;
    int ret = 0;

    if (!parse(text, &on, deny, errp)) {
        return FALSE;
    }
    if (!on) {
        return TRUE;
    }
    scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ALLOW);
    if (!filter) {
        return error_set(errp, "-sandbox: the kernel has no system call filters");
    }
    for (size_t i = 0; i < G_N_ELEMENTS(groups) && !ret; i++) {
        if (deny[i]) {
            ret = deny_group(filter, &groups[i]);
            if (!ret && !strcmp(groups[i].name, "spawn")) {
                ret = deny_process_clone(filter);
            }
        }
    }
    /* All threads: iothreads run already. */
    if (!ret) {
        ret = seccomp_attr_set(filter, SCMP_FLTATR_CTL_TSYNC, 1);
    }
    if (!ret) {
        ret = seccomp_load(filter);
    }
    seccomp_release(filter);
    return !ret || error_set_errno(errp, -ret, "-sandbox: cannot install the filter");
}
