/*
 * Guest RAM shared with the emulator: see ram.h.
 *
 * Does not know the machine's memory layout beyond this: everything from 1 MiB up is ours,
 * the first MiB (firmware area, the hole below it) is left alone.
 */
#include "guest/ram.h"
#include <errno.h>
#include <gio/gio.h>
#include <inttypes.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define FIRST_ADDR (1u << 20)

GuestRam *guest_ram_new(size_t size, GError **errp)
{
    if (size < 2 * FIRST_ADDR || size % (size_t)sysconf(_SC_PAGESIZE) != 0) {
        g_set_error(errp, G_IO_ERROR, G_IO_ERROR_INVALID_ARGUMENT,
                    "guest RAM of %zu bytes: use at least 2 MiB, whole pages", size);
        return NULL;
    }
    int fd = memfd_create("swnic-guest-ram", MFD_CLOEXEC);
    void *host = MAP_FAILED;
    if (fd >= 0 && ftruncate(fd, (off_t)size) == 0) {
        host = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    }
    if (host == MAP_FAILED) {
        g_set_error(errp, G_IO_ERROR, G_IO_ERROR_FAILED, "guest RAM of %zu bytes: %s", size,
                    g_strerror(errno));
        if (fd >= 0) {
            close(fd);
        }
        return NULL;
    }
    GuestRam *ram = g_new0(GuestRam, 1);
    ram->host = host;
    ram->size = size;
    ram->fd = fd;
    ram->next = FIRST_ADDR;
    return ram;
}

void guest_ram_free(GuestRam *ram)
{
    if (ram) {
        munmap(ram->host, ram->size);
        close(ram->fd);
        g_free(ram);
    }
}

bool guest_ram_replace(GuestRam *ram, GuestRam *other, GError **errp)
{
    if (other->size != ram->size || mmap(ram->host, ram->size, PROT_READ | PROT_WRITE,
                                         MAP_SHARED | MAP_FIXED, other->fd, 0) == MAP_FAILED) {
        g_set_error(errp, G_IO_ERROR, G_IO_ERROR_FAILED,
                    "guest RAM of %zu bytes in the place of %zu: %s", other->size, ram->size,
                    other->size != ram->size ? "other size" : g_strerror(errno));
        return false;
    }
    munmap(other->host, other->size);
    close(ram->fd);
    ram->fd = other->fd;
    g_free(other);
    return true;
}

uint64_t guest_ram_alloc(GuestRam *ram, size_t size, size_t align)
{
    uint64_t addr = (ram->next + align - 1) & ~(uint64_t)(align - 1);
    if (addr > ram->size || size > ram->size - addr) {
        return 0;
    }
    ram->next = addr + size;
    memset(ram->host + addr, 0, size);
    return addr;
}

void guest_ram_reset(GuestRam *ram)
{
    ram->next = FIRST_ADDR;
}

void *guest_ram_pointer(const GuestRam *ram, uint64_t addr, size_t size)
{
    if (addr > ram->size || size > ram->size - addr) {
        return NULL;
    }
    return ram->host + addr;
}
