/*
 * Errors for people.  GError with one domain; codes are QMP's error classes.  A message is one
 * line without a full stop: which thing, which value, what is allowed.
 */
#ifndef UTIL_ERROR_H
#define UTIL_ERROR_H

#include <glib.h>

typedef enum SwnicErrorClass {
    ERROR_GENERIC,
    ERROR_COMMAND_NOT_FOUND,
    ERROR_DEVICE_NOT_FOUND,
    ERROR_DEVICE_NOT_ACTIVE,
    ERROR_KVM_MISSING_CAP,
} SwnicErrorClass;

#define SWNIC_ERROR (swnic_error_quark())
GQuark swnic_error_quark(void);

/* Sets *errp (if errp is not NULL) to a generic error.  Returns false, so that callers can
 * write `return error_set(errp, "…")`. */
gboolean error_set(GError **errp, const char *fmt, ...) G_GNUC_PRINTF(2, 3);
gboolean error_set_class(GError **errp, SwnicErrorClass cls, const char *fmt, ...)
    G_GNUC_PRINTF(3, 4);
/* As error_set, with ": " and the text of @errnum behind. */
gboolean error_set_errno(GError **errp, int errnum, const char *fmt, ...) G_GNUC_PRINTF(3, 4);

/* "swnic-system-x86_64: <message>" on standard error; warn adds "warning: ". */
void error_report(const char *fmt, ...) G_GNUC_PRINTF(1, 2);
void warn_report(const char *fmt, ...) G_GNUC_PRINTF(1, 2);
void error_report_and_free(GError *err);
void error_set_program_name(const char *argv0);

/* Whether reports and lines of the log begin with the time (-msg timestamp=on). */
void error_set_timestamps(gboolean on);
/* Whether reports have the guest's name (-name) behind the time (-msg guest-name=on), and which. */
void error_set_guest_names(gboolean on);
void error_set_guest(const char *name);
/* "2026-01-31T12:00:00.000000Z ", or "" if they do not; g_free it. */
char *error_time_prefix(void);

#endif
